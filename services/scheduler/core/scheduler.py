"""Iteration-level scheduling: which sequences compute in the next step (paper §4.5, Orca §3).

Groups are served in the order of the policy (``order``): as they arrive, or the more urgent before. Running groups
continue before waiting ones enter, decodes before prompts, and prompts are computed in chunks under a token budget.
Where memory runs out the last group in that order gives way and goes back to its place in the queue. A more urgent
arrival has less urgent groups give way for it, but an equally urgent one is never overtaken.

The choices of a request are one group: they run, wait and give way together. One of them computes the prompt, and
the others are forked from it (``sequence``).

One step is ``plan`` → ``apply(grant)`` → ``commit(result)``. Until its answer comes, a plan or a step is handed out
again unchanged; requests may arrive and end at any time in between.

Steps may overlap: while one computes, the next can be planned and applied. It goes on from tokens that are not known
yet (``SAMPLED_TOKEN``); where it turns out that a sequence had ended, what was computed for it is discarded:

    step n      plan  apply ─────────── commit
    step n + 1              plan  apply ─────────── commit

Steps are committed in order, and never between a plan and its grant.
"""

from collections import deque
from collections.abc import Iterable
from itertools import count

from scheduler.core.beam_groups import BeamGroups, divide
from scheduler.core.giving_way import Free
from scheduler.core.planning import MAX_ENTERING_GROUPS, Room, entering_groups
from scheduler.core.prefix_hash import PrefixHasher
from scheduler.core.queues import Queues
from scheduler.core.request import FinishReason, GroupId, Request, SequenceId
from scheduler.core.sampled import sampled_rows, tops_of
from scheduler.core.sealing import SealedBlocks
from scheduler.core.sequence import Sequence, SequenceGroup, SequenceStatus, new_group
from scheduler.core.shape import MemoryShape, SchedulerConfig
from scheduler.core.stepping import StepBatch
from scheduler.core.steps import Events, Grant, OutOfStepError, Plan, Preemption, Step, StepResult

MAX_STEPS_IN_HAND = 2
"""Steps whose results are awaited: one computes, and one is ready to follow it."""


class Scheduler:
    """The waiting and the running groups of one pool, and the steps in hand."""

    def __init__(self, config: SchedulerConfig, memory: MemoryShape) -> None:
        self._config = config
        self._group_ids = count(1)
        self._sequence_ids = map(SequenceId, count(1))
        self._queues = Queues(config.preemption_mode, config.policy)
        self._beam_groups = BeamGroups(self._queues, self._sequence_ids)
        self.num_steps = 0
        self.num_preemptions = 0  # groups that gave way, in whatever mode
        self.gave_way: list[GroupId] = []  # to a more urgent one, before the last plan
        self.num_swaps = 0  # of them, those that were swapped out
        self._refused_group_id: GroupId | None = None  # the first that memory had no room for in the last step
        self._plan: Plan | None = None
        self._in_hand: deque[StepBatch] = deque()  # oldest first
        self._begin(memory)

    @property
    def memory(self) -> MemoryShape:
        """The memory that is scheduled now."""
        return self._memory

    @property
    def last_step_id(self) -> int:
        """Id of the latest plan of this epoch."""
        return self._last_step_id

    @property
    def unanswered_plan(self) -> Plan | None:
        """The plan whose grant is awaited."""
        return self._plan

    @property
    def unanswered_steps(self) -> list[Step]:
        """The steps whose results are awaited, oldest first."""
        return [batch.step for batch in self._in_hand]

    @property
    def num_waiting(self) -> int:
        """Groups that hold no device memory."""
        return len(self._queues.waiting)

    @property
    def waiting(self) -> Iterable[SequenceGroup]:
        """Groups that hold no device memory, in the order in which they are served."""
        return iter(self._queues.waiting)

    @property
    def num_running(self) -> int:
        """Groups that hold device memory."""
        return len(self._queues.running.groups)

    @property
    def groups(self) -> tuple[SequenceGroup, ...]:
        """Groups that have not ended, in order of arrival."""
        return tuple(self._queues.groups.values())

    def check(self) -> None:
        """Raises ``AssertionError`` if the queues contradict the sequences."""
        self._queues.check(len(self._in_hand))

    # ---- requests

    def add(self, request: Request) -> SequenceGroup:
        """Queues a request.

        Raises:
            RequestRefused: It can never be served.

        """
        self._memory.limits.check(request)
        group = new_group(request, GroupId(next(self._group_ids)), self._sequence_ids)
        self._queues.add(group)
        return group

    def abort(self, group_id: GroupId, reason: FinishReason = FinishReason.ABORT) -> bool:
        """Ends a group wherever it is; ``False`` if it ended before."""
        group = self._queues.groups.get(group_id)
        if group is None:
            return False
        self._queues.finish([(sequence, reason) for sequence in group.live_sequences])
        return True

    def finish(self, ends: Iterable[tuple[SequenceId, FinishReason]]) -> None:
        """Ends sequences for a reason that tokens do not show, such as a stop string. Ended ones are ignored."""
        live = self._queues.sequences
        self._queues.finish([(live[sequence_id], reason) for sequence_id, reason in ends if sequence_id in live])

    # ---- one step

    def plan(self) -> Plan | None:
        """What the next step wants from memory, or ``None`` if there is nothing to do before the step in hand is
        committed, or at all.

        The same plan comes again until ``apply`` took its answer.
        """
        if len(self._in_hand) == MAX_STEPS_IN_HAND:
            raise OutOfStepError(f"step {self._in_hand[0].step.step_id} is not committed yet")
        if self._plan is None and (not self._in_hand or self._can_go_on()):
            self._plan = self._make_plan()
        return self._plan

    def apply(self, grant: Grant) -> Step:
        """Takes the answer to the plan and says what the worker computes."""
        plan = self._plan
        if plan is None or grant.step_id != plan.step_id:
            raise OutOfStepError(f"grant {grant.step_id} answers no plan; the last step is {self._last_step_id}")
        self._plan = None
        is_refused = grant.refusal and not grant.admitted_group_ids and not grant.preempted_group_ids
        self._refused_group_id = plan.entering.group_ids[0] if is_refused else None
        self._num_used_blocks = grant.usage.num_used_device_blocks
        self._take_back(grant)
        batch = StepBatch()
        batch.add_running(self._planned_sequences, plan.running.num_new_slots)
        for _, child_id in plan.forks:
            self._introduce(child_id, batch)
        self._admit(grant, batch)
        self._in_hand.append(batch)
        return batch.hand_out(grant, self._memory.epoch)

    def commit(self, result: StepResult) -> Events:
        """Takes the result of the oldest step in hand: seals full blocks, appends tokens, ends sequences.

        Tokens for sequences that ended meanwhile, or that nobody knows, are ignored.
        """
        batch = self._oldest(result.step_id)
        sampled, beams = divide(sampled_rows(result, batch.samplers, self._queues.groups))
        self._in_hand.popleft()
        self.num_steps += 1
        block_size = self._memory.limits.block_size
        batch.seal(self._sealed, block_size, self._queues.released)
        batch.scored.take(result)
        self._queues.fork(batch.completed_trunks(), block_size)
        sequence_ids = [sequence.sequence_id for sequence, _ in sampled]
        token_ids = [result.token_ids[row] for _, row in sampled]
        logprobs = [result.logprobs[row] for _, row in sampled]
        reasons = self._append([sequence for sequence, _ in sampled], token_ids)
        tops = tops_of(result, [row for _, row in sampled])
        rows = tops_of(result, [row for _, row in beams])
        ended = self._beam_groups.take(zip([beam for beam, _ in beams], rows, strict=True))
        return Events(sequence_ids, token_ids, logprobs, reasons, tops, ended)

    def restart_memory(self, memory: MemoryShape) -> None:
        """All blocks are gone: the steps in hand are dropped, what ran is computed again from its known tokens."""
        self._queues.lose_memory()
        self._begin(memory)

    # ---- inside

    def _begin(self, memory: MemoryShape) -> None:
        self._memory = memory
        self._hasher = PrefixHasher(memory.domain, memory.limits.block_size)
        self._last_step_id = memory.last_step_id
        self._plan = None
        self._in_hand.clear()
        self._planned_sequences: list[Sequence] = []
        self._sealed = SealedBlocks(self._hasher)
        self._refused_group_id = None
        self._num_used_blocks = 0  # as of the last grant

    def _oldest(self, step_id: int) -> StepBatch:
        if not self._in_hand or self._in_hand[0].step.step_id != step_id:
            raise OutOfStepError(f"result {step_id} answers no step; the last step is {self._last_step_id}")
        if self._plan is not None:
            raise OutOfStepError(f"plan {self._last_step_id} is not answered yet")
        return self._in_hand[0]

    def _can_go_on(self) -> bool:
        """Whether a step can follow the one in hand before its result is known, and has something to compute."""
        if self._in_hand[0].decides_the_next:
            return False
        return any(sequence.num_uncomputed_tokens for sequence in self._queues.running.sequences)

    def _make_plan(self) -> Plan | None:
        queues = self._queues
        if not (queues.groups or queues.released or self._sealed.sequence_ids):
            return None
        way = queues.make_way(self._free, self._refused_group_id)
        self.gave_way = [group.group_id for group in way.gave_way]
        self.num_preemptions += len(way.gave_way)
        budget = self._config.max_num_batched_tokens
        running = queues.running.columns(budget, way.num_paused)
        free = self._free
        room = Room(
            num_tokens=budget - sum(running.num_new_slots),
            num_seqs=free.num_seqs,
            num_groups=1 if way.gave_way or way.is_refused else MAX_ENTERING_GROUPS,
            num_blocks=free.num_blocks if queues.running.groups else None,
        )
        entering = entering_groups(queues.waiting, self._hasher, room)
        self._last_step_id += 1
        self._planned_sequences = queues.running.sequences
        sealed, self._sealed = self._sealed, SealedBlocks(self._hasher)
        forks, queues.forks = queues.forks, {}
        released, queues.released = queues.released, []
        return Plan(
            step_id=self._last_step_id,
            sealed_sequence_ids=sealed.sequence_ids,
            sealed_block_indexes=sealed.block_indexes,
            sealed_hashes=bytes(sealed.hashes),
            forks=[(parent, child) for child, parent in forks.items()],
            released=released,
            running=running,
            entering=entering,
        )

    @property
    def _free(self) -> Free:
        return Free(
            num_seqs=self._config.max_num_seqs - self._queues.running.num_seqs,
            num_blocks=self._memory.limits.num_device_blocks - self._num_used_blocks,
            block_size=self._memory.limits.block_size,
        )

    def _take_back(self, grant: Grant) -> None:
        """Carries out preemptions. A victim that ended since the plan and was dropped has nothing left to release."""
        if not grant.preempted_group_ids:
            return
        self.num_preemptions += len(grant.preempted_group_ids)
        self.num_swaps += list(grant.preempted_modes).count(Preemption.SWAP)
        modes = dict(zip(grant.preempted_group_ids, grant.preempted_modes, strict=True))
        dropped = {
            sequence.sequence_id
            for sequence in self._planned_sequences
            if sequence.is_finished and modes.get(sequence.group_id) is Preemption.RECOMPUTE
        }
        self._queues.released = [s for s in self._queues.released if s not in dropped]
        self._queues.preempt(grant)

    def _admit(self, grant: Grant, batch: StepBatch) -> None:
        for group in self._queues.admit(grant, self._memory.limits.block_size):
            if group.num_cached_tokens is None:
                group.num_cached_tokens = group.running_sequences[0].num_computed_tokens
        live = self._queues.sequences
        for sequence_id in grant.admitted_sequence_ids:
            self._introduce(sequence_id, batch)
        for sequence_id, num_tokens in zip(grant.admitted_sequence_ids, grant.num_new_slots, strict=True):
            if num_tokens and sequence_id in live:
                batch.add(live[sequence_id], num_tokens)

    def _introduce(self, sequence_id: SequenceId, batch: StepBatch) -> None:
        """Has the worker told about a sequence that has just got a table there, if it has kept it."""
        sequence = self._queues.sequences.get(sequence_id)
        if sequence is not None and sequence.status is SequenceStatus.RUNNING:
            batch.introduce(sequence, self._queues.groups[sequence.group_id].request)

    def _append(self, samplers: list[Sequence], token_ids: list[int]) -> list[FinishReason | None]:
        reasons = [sequence.append(token_id) for sequence, token_id in zip(samplers, token_ids, strict=True)]
        self._queues.finish(
            [(sequence, reason) for sequence, reason in zip(samplers, reasons, strict=True) if reason is not None]
        )
        return reasons
