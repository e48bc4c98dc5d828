"""Iteration-level scheduling: which sequences compute in the next step (paper §4.5, Orca §3).

First come, first served. Running groups continue before waiting ones enter, decodes before prompts, and prompts are
computed in chunks under a token budget. Where memory runs out the latest arrival gives way and goes back to the front
of the queue, so groups always run in the order in which they arrived.

One step is ``plan`` → ``apply(grant)`` → ``commit(result)``. Until its answer comes, a plan or a step is handed out
again unchanged; requests may arrive and end at any time in between.
"""

from collections.abc import Iterable
from itertools import count

from scheduler.core.planning import MAX_ENTERING_GROUPS, entering_groups
from scheduler.core.prefix_hash import PrefixHasher
from scheduler.core.queues import Queues
from scheduler.core.request import FinishReason, GroupId, Request, SequenceId
from scheduler.core.sealing import SealedBlocks
from scheduler.core.sequence import Sequence, SequenceGroup, SequenceStatus
from scheduler.core.shape import MemoryShape, SchedulerConfig
from scheduler.core.stepping import StepBatch
from scheduler.core.steps import Events, Grant, Plan, Preemption, Step, StepResult


class OutOfStepError(Exception):
    """A plan, grant or result came that does not belong to the step in hand."""


class Scheduler:
    """The waiting and the running groups of one pool, and the step in hand."""

    def __init__(self, config: SchedulerConfig, memory: MemoryShape) -> None:
        self._config = config
        self._group_ids = count(1)
        self._sequence_ids = count(1)
        self._queues = Queues()
        self.num_steps = 0
        self.num_preemptions = 0
        self._plan: Plan | None = None
        self._step: Step | None = None
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
    def unanswered_step(self) -> Step | None:
        """The step whose result is awaited."""
        return self._step

    @property
    def num_waiting(self) -> int:
        """Groups that hold no device memory."""
        return len(self._queues.waiting)

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
        self._queues.check()

    # ---- requests

    def add(self, request: Request) -> SequenceGroup:
        """Queues a request.

        Raises:
            RequestRefused: It can never be served.

        """
        self._memory.limits.check(request)
        group_id = GroupId(next(self._group_ids))
        num_prompt_tokens = len(request.prompt_token_ids)
        sequence = Sequence(
            sequence_id=SequenceId(next(self._sequence_ids)),
            group_id=group_id,
            token_ids=list(request.prompt_token_ids),
            num_prompt_tokens=num_prompt_tokens,
            max_num_tokens=num_prompt_tokens + request.stop.max_tokens,
            stop_token_ids=request.stop.stop_token_ids,
        )
        group = SequenceGroup(group_id, request, [sequence])
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
        """What the next step wants from memory, or ``None`` if there is nothing to do.

        The same plan comes again until ``apply`` took its answer.
        """
        if self._step is not None:
            raise OutOfStepError(f"step {self._last_step_id} is not committed yet")
        if self._plan is None:
            self._plan = self._make_plan()
        return self._plan

    def apply(self, grant: Grant) -> Step:
        """Takes the answer to the plan and says what the worker computes."""
        plan = self._plan
        if plan is None or grant.step_id != plan.step_id:
            raise OutOfStepError(f"grant {grant.step_id} answers no plan; the last step is {self._last_step_id}")
        self._plan = None
        self._head_is_refused = bool(grant.refusal) and not grant.admitted_group_ids
        self._take_back(grant)
        batch = StepBatch()
        batch.add_running(self._planned_sequences, plan.running.num_new_slots)
        self._admit(grant, batch)
        self._batch = batch
        self._step = batch.step(grant, self._memory.epoch)
        return self._step

    def commit(self, result: StepResult) -> Events:
        """Takes the result of the step: counts computed tokens, seals full blocks, appends tokens, ends sequences.

        Tokens for sequences that ended meanwhile, or that nobody knows, are ignored.
        """
        step, batch = self._step, self._batch
        if step is None or result.step_id != step.step_id:
            raise OutOfStepError(f"result {result.step_id} answers no step; the last step is {self._last_step_id}")
        tokens = dict(zip(result.sequence_ids, result.token_ids, strict=True))
        samplers = [sequence for sequence in batch.samplers if sequence.finish_reason is None]
        sequence_ids = [sequence.sequence_id for sequence in samplers]
        if missing := [sequence_id for sequence_id in sequence_ids if sequence_id not in tokens]:
            raise OutOfStepError(f"result {result.step_id} has no token for sequences {missing}")
        self._step = None
        self.num_steps += 1
        batch.count_computed(self._sealed, self._memory.limits.block_size)
        token_ids = [tokens[sequence_id] for sequence_id in sequence_ids]
        return Events(sequence_ids, token_ids, self._append(samplers, token_ids))

    def restart_memory(self, memory: MemoryShape) -> None:
        """All blocks are gone: the step in hand is dropped, what ran is computed again from its known tokens."""
        self._queues.lose_memory()
        self._begin(memory)

    # ---- inside

    def _begin(self, memory: MemoryShape) -> None:
        self._memory = memory
        self._hasher = PrefixHasher(memory.domain, memory.limits.block_size)
        self._last_step_id = memory.last_step_id
        self._plan = None
        self._step = None
        self._batch = StepBatch()
        self._planned_sequences: list[Sequence] = []
        self._sealed = SealedBlocks(self._hasher)
        self._head_is_refused = False

    def _make_plan(self) -> Plan | None:
        queues = self._queues
        if not (queues.groups or queues.released or self._sealed.sequence_ids):
            return None
        budget = self._config.max_num_batched_tokens
        running = queues.running.columns(budget)
        entering = entering_groups(
            queues.waiting,
            self._hasher,
            token_budget=budget - sum(running.num_new_slots),
            max_seqs=self._config.max_num_seqs - len(running.sequence_ids),
            max_groups=1 if self._head_is_refused else MAX_ENTERING_GROUPS,
        )
        self._last_step_id += 1
        self._planned_sequences = queues.running.sequences
        sealed, self._sealed = self._sealed, SealedBlocks(self._hasher)
        released, queues.released = queues.released, []
        return Plan(
            step_id=self._last_step_id,
            sealed_sequence_ids=sealed.sequence_ids,
            sealed_block_indexes=sealed.block_indexes,
            sealed_hashes=bytes(sealed.hashes),
            released=released,
            running=running,
            entering=entering,
        )

    def _take_back(self, grant: Grant) -> None:
        """Carries out preemptions. A victim that ended since the plan and was dropped has nothing left to release."""
        if not grant.preempted_group_ids:
            return
        self.num_preemptions += len(grant.preempted_group_ids)
        modes = dict(zip(grant.preempted_group_ids, grant.preempted_modes, strict=True))
        dropped = {
            sequence.sequence_id
            for sequence in self._planned_sequences
            if sequence.is_finished and modes.get(sequence.group_id) is Preemption.RECOMPUTE
        }
        self._queues.released = [s for s in self._queues.released if s not in dropped]
        self._queues.preempt(grant)

    def _admit(self, grant: Grant, batch: StepBatch) -> None:
        live = self._queues.sequences
        for sequence_id in grant.admitted_sequence_ids:
            sequence = live.get(sequence_id)
            if sequence is not None and sequence.status is SequenceStatus.WAITING:
                batch.introduce(sequence, self._queues.groups[sequence.group_id].request.sampling)
        for group in self._queues.admit(grant, self._memory.limits.block_size):
            if group.num_cached_tokens is None:
                group.num_cached_tokens = group.sequences[0].num_computed_tokens
        for sequence_id, num_tokens in zip(grant.admitted_sequence_ids, grant.num_new_slots, strict=True):
            if num_tokens and sequence_id in live:
                batch.add(live[sequence_id], num_tokens)

    def _append(self, samplers: list[Sequence], token_ids: list[int]) -> list[FinishReason | None]:
        reasons = [sequence.append(token_id) for sequence, token_id in zip(samplers, token_ids, strict=True)]
        self._queues.finish(
            [(sequence, reason) for sequence, reason in zip(samplers, reasons, strict=True) if reason is not None]
        )
        return reasons
