"""Lets groups enter: prompts with what the prefix cache knows of them, and swapped groups with their blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvmanager.core.block_table import BlockTable, DeviceTables
from kvmanager.core.changes import ChangeLog
from kvmanager.core.host_tier import HostTier
from kvmanager.core.plan import BlockId, EnteringGroups, GroupId, SequenceId


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sequence that asks to enter."""

    sequence_id: SequenceId
    num_tokens: int
    num_present_tokens: int
    hits: Sequence[BlockId]  # its first blocks, if they are cached; not for a swapped sequence
    swapped: BlockTable | None


@dataclass(slots=True)
class Admitted:
    """Groups that entered in one step. Columns as in ``Grant``."""

    group_ids: list[GroupId] = field(default_factory=list)
    sequence_ids: list[SequenceId] = field(default_factory=list)
    num_present_tokens: list[int] = field(default_factory=list)
    num_new_slots: list[int] = field(default_factory=list)
    refusal: str = ""
    num_prompt_tokens: int = 0  # of the sequences that were not swapped
    num_hit_tokens: int = 0


class Admission:
    """Admits a group whole: only if all its known tokens fit beside what was promised to those before it.

    Only the chunk of this step is allocated. Without that promise a long prompt would be admitted chunk by chunk
    just to be preempted by the next one.
    """

    __slots__ = ("_device", "_host", "_watermark_blocks")

    def __init__(self, device: DeviceTables, host: HostTier, watermark_blocks: int) -> None:
        self._device = device
        self._host = host
        self._watermark_blocks = watermark_blocks

    def enter(self, entering: EnteringGroups, step_id: int, changes: ChangeLog) -> Admitted:
        """Admits groups in order until one does not fit or the token budget is used up."""
        admitted = Admitted()
        budget = entering.token_budget
        first = 0
        for group_id, num_sequences in zip(entering.group_ids, entering.num_sequences, strict=True):
            refusal = self._refusal_without_looking(budget)
            if not refusal:
                candidates = [self._candidate(entering, index) for index in range(first, first + num_sequences)]
                refusal = self._refusal(candidates)
            if refusal:
                if not admitted.group_ids:
                    admitted.refusal = f"group {group_id} {refusal}"
                break
            first += num_sequences
            admitted.group_ids.append(group_id)
            budget = self._admit(candidates, budget, step_id, changes, admitted)
        return admitted

    # --- Questions ---

    def _num_available(self) -> int:
        """Blocks that an entering group may take. The watermark is there for those that run; without any it is void."""
        watermark = self._watermark_blocks if len(self._device) else 0
        return self._device.tier.num_free - self._device.num_promised_blocks - watermark

    def _refusal_without_looking(self, budget: int) -> str:
        """Refuses what cannot enter whatever it is, so that a waiting prompt is not looked up in every step."""
        if budget <= 0:
            return "waits for token budget"
        if self._num_available() <= 0:
            return f"needs blocks; {self._free_in_words()}"
        return ""

    def _refusal(self, candidates: Sequence[Candidate]) -> str:
        needed = self._num_blocks_needed(candidates)
        if needed > self._num_available():
            return f"needs {needed} blocks; {self._free_in_words()}"
        return ""

    def _free_in_words(self) -> str:
        return (
            f"{self._device.tier.num_free} are free, {self._device.num_promised_blocks} of them promised, "
            f"watermark {self._watermark_blocks if len(self._device) else 0}"
        )

    def _candidate(self, entering: EnteringGroups, index: int) -> Candidate:
        sequence_id, num_tokens = entering.sequence_ids[index], entering.num_tokens[index]
        swapped = self._host.tables.get(sequence_id)
        if swapped is not None:
            return Candidate(sequence_id, num_tokens, swapped.num_slots, (), swapped)
        # The last known token is always computed: its logits are wanted.
        longest = (num_tokens - 1) // self._device.block_size
        hits = self._device.tier.cache.hits(entering.prefix_hashes[index][:longest])
        return Candidate(sequence_id, num_tokens, len(hits) * self._device.block_size, hits, None)

    def _num_blocks_needed(self, candidates: Sequence[Candidate]) -> int:
        """Free blocks that a group takes until all its known tokens are there, shared blocks counted once."""
        device, host, counts = self._device, self._host, self._device.tier.pool.counts
        revived: set[BlockId] = set()  # cached blocks that leave the free queue
        fetched: set[int] = set()  # host blocks that come back by a move
        writers: dict[int, int] = {}  # shared last blocks that are written next
        needed = 0
        for candidate in candidates:
            hits = candidate.hits
            held = len(hits)
            swapped = candidate.swapped
            if swapped is not None:
                held = len(swapped.blocks)
                found = {block_id: host.cached(BlockId(block_id), device.tier) for block_id in swapped.blocks}
                hits = [known for known in found.values() if known is not None]
                fetched.update(block_id for block_id, known in found.items() if known is None)
                if swapped.num_slots % device.block_size:
                    writers[swapped.blocks[-1]] = writers.get(swapped.blocks[-1], 0) + 1
            revived.update(block_id for block_id in hits if counts[block_id] == 0)
            needed += device.num_blocks_for(candidate.num_tokens) - held
        copied = sum(min(count, host.pool.counts[last] - 1) for last, count in writers.items())
        return needed + len(revived) + len(fetched) + copied

    # --- Commands ---

    def _admit(
        self, candidates: Sequence[Candidate], budget: int, step_id: int, changes: ChangeLog, admitted: Admitted
    ) -> int:
        """Carries a group's admission out and returns what is left of the token budget."""
        # Blocks that are cached are held before any block is taken, since taking evicts.
        self._hold(candidates)
        returning, moves = self._host.swap_in([c.swapped for c in candidates if c.swapped], self._device, step_id)
        changes.swapped_in(moves)
        tables = {table.sequence_id: table for table in returning}
        for candidate in candidates:
            table = tables.get(candidate.sequence_id)
            if table is None:
                table = BlockTable(candidate.sequence_id, candidate.hits, candidate.num_present_tokens)
                admitted.num_prompt_tokens += candidate.num_tokens
                admitted.num_hit_tokens += candidate.num_present_tokens
            self._device.add(table)
            self._device.promise(table, candidate.num_tokens)
            num_new_slots = min(candidate.num_tokens - candidate.num_present_tokens, budget)
            budget -= num_new_slots
            growth = self._device.grow(table, table.num_slots + num_new_slots)
            if growth.copied_from is not None:
                copy = table.blocks[len(table.blocks) - growth.num_added - 1]
                changes.copied(growth.copied_from, BlockId(copy))
            changes.entered(table)
            admitted.sequence_ids.append(candidate.sequence_id)
            admitted.num_present_tokens.append(candidate.num_present_tokens)
            admitted.num_new_slots.append(num_new_slots)
        return budget

    def _hold(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            for block_id in candidate.hits:
                self._device.tier.share(block_id)
