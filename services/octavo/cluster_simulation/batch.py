"""What a worker has in hand: requests with their lengths, and a step of them as a plan."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvmanager.core.plan import EnteringGroups, GroupId, Preemption, PrefixHash, RunningGroups, SealedBlocks, SequenceId
from octavo.cluster_simulation.trace import TraceRequest
from octavo.simulation.cost import StepShape


@dataclass(slots=True, eq=False)
class Job:
    """A request at a worker."""

    sequence_id: SequenceId
    request: TraceRequest
    prefix_hashes: Sequence[PrefixHash]
    num_tokens: int  # known: the prompt and what was sampled
    waits_since_s: float
    num_slots: int = 0  # tokens whose KV is there, or is there after the step in hand
    num_sealed: int = 0  # blocks
    entered_before: bool = False
    num_cached_tokens: int = 0  # when it entered first

    @property
    def num_missing(self) -> int:
        """Known tokens without KV: those that are left of a prompt, or one to go on from."""
        return self.num_tokens - self.num_slots

    @property
    def num_left(self) -> int:
        """Output tokens that are not sampled yet."""
        return self.request.num_tokens - self.num_tokens

    def dropped(self, now_s: float) -> None:
        """Gave its blocks back; what it knows is computed again."""
        self.num_slots = self.num_sealed = 0
        self.waits_since_s = now_s


@dataclass(frozen=True, slots=True)
class Row:
    """A request in a step."""

    job: Job
    num_new_slots: int


def rows_within(running: Iterable[Job], token_budget: int) -> list[Row]:
    """What each running request computes: decodes first, then prompts in order, in chunks that fit the budget.

    The budget is at least the number of requests, so that every decode has its token.
    """
    chunks = [1 if job.num_missing == 1 else 0 for job in running]
    left = token_budget - sum(chunks)
    rows = []
    for job, chunk in zip(running, chunks, strict=True):
        num_new_slots = chunk or max(0, min(left, job.num_missing))
        left -= num_new_slots - chunk
        if num_new_slots:
            rows.append(Row(job, num_new_slots))
    return rows


def running_groups(rows: Sequence[Row], num_new_slots: int | None = None) -> RunningGroups:
    """Every row as a group of its own that is recomputed when it gives way."""
    ids = [row.job.sequence_id for row in rows]
    return RunningGroups(
        group_ids=[GroupId(sequence_id) for sequence_id in ids],
        num_sequences=[1] * len(rows),
        preemptions=[Preemption.RECOMPUTE] * len(rows),
        sequence_ids=ids,
        num_new_slots=[row.num_new_slots if num_new_slots is None else num_new_slots for row in rows],
    )


def entering_groups(jobs: Sequence[Job], token_budget: int) -> EnteringGroups:
    """Requests that ask to enter."""
    ids = [job.sequence_id for job in jobs]
    return EnteringGroups(
        token_budget=token_budget,
        group_ids=[GroupId(sequence_id) for sequence_id in ids],
        num_sequences=[1] * len(jobs),
        sequence_ids=ids,
        num_tokens=[job.num_tokens for job in jobs],
        prefix_hashes=[job.prefix_hashes for job in jobs],
    )


def sealed_blocks(jobs: Iterable[Job], block_size: int) -> SealedBlocks:
    """Blocks of prompts that became full since this was last asked; it is not asked for them again."""
    ids: list[SequenceId] = []
    indexes: list[int] = []
    hashes: list[PrefixHash] = []
    for job in jobs:
        num_full = min(job.num_slots // block_size, len(job.prefix_hashes))
        if num_full > job.num_sealed:
            ids += [job.sequence_id] * (num_full - job.num_sealed)
            indexes += range(job.num_sealed, num_full)
            hashes += job.prefix_hashes[job.num_sealed : num_full]
            job.num_sealed = num_full
    return SealedBlocks(ids, indexes, hashes)


def shape_of(rows: Sequence[Row]) -> StepShape:
    """What a step does, before its slots are counted as there."""
    num_tokens = num_context = num_prompts = num_pairs = 0
    for row in rows:
        num, position = row.num_new_slots, row.job.num_slots
        num_tokens += num
        if num == 1:
            num_context += position + 1
        else:
            num_prompts += 1
            num_pairs += num * position + num * num // 2
    return StepShape(num_tokens, len(rows), num_prompts, num_context, num_attended_pairs=num_pairs)
