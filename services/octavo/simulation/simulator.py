"""A discrete-event simulation of one server: the real scheduler and a memory space, a virtual clock, a cost model.

Each step is plan → grant → commit, exactly as the engine drives it, except that the time in between is computed. Where
the outcome of the next k steps is certain (everybody decodes, nobody ends, enters or gives way) they are taken in one:
see ``jump``.
"""

from collections.abc import Sequence as Column
from dataclasses import dataclass
from itertools import compress

from kvmanager.core import plan as memory
from kvmanager.core.block_space import BlockSpace
from kvmanager.core.spaces.memory_space import Lengths
from kvmanager.core.spaces.static_batch import StaticBatchSpace
from octavo.simulation.beams import BeamRows
from octavo.simulation.cores import to_memory, to_scheduler
from octavo.simulation.cost import StepShape
from octavo.simulation.jump import longest_jump
from octavo.simulation.outcome import Outcome, Tally
from octavo.simulation.requests import OUTPUT_TOKEN, check_fits, request_of, scheduler_for
from octavo.simulation.settings import Settings
from octavo.simulation.spaces import make_cost, make_space, num_shared_slots, occupancy_of
from octavo.simulation.workload import Arrival
from scheduler.core.request import GroupId, SequenceId
from scheduler.core.sequence import Sequence, SequenceGroup
from scheduler.core.steps import Plan, Step, StepResult

_LOOK_INTERVAL_S = 1.0  # of virtual time between looks at the memory
_NUM_STEPS_TO_GIVE_UP = 64  # between looks at whether the run is saturated


@dataclass(slots=True, eq=False)
class _Open:
    """A request in the system."""

    arrival: Arrival
    group: SequenceGroup


class Simulation:
    """One trace on one server. Raises ``TraceUnusable`` for a trace with a request that never fits."""

    def __init__(self, settings: Settings, arrivals: Column[Arrival]) -> None:
        check_fits(arrivals, settings)
        self._settings = settings
        self._arrivals = arrivals
        self._num_arrived = 0
        self._clock_s = 0.0
        self._space = make_space(settings.space, settings.pool, self._lengths_of)
        self._cost = make_cost(settings.space, settings.pool)
        self._scheduler = scheduler_for(settings)
        searches = bool(arrivals) and arrivals[0].is_beam_search
        self._beams = BeamRows(arrivals[0].num_sequences) if searches else None
        self._open: dict[GroupId, _Open] = {}
        self._lengths: dict[SequenceId, Lengths] = {}  # of sequences that enter
        self._sequences: dict[SequenceId, Sequence] = {}
        self._ended: list[Arrival] = []  # but returned only with the rest of their batch
        self._decoding: Column[SequenceId] = ()  # in the last step, which changed nothing but lengths; else empty
        self._shares = any(arrival.num_shared_tokens or arrival.num_sequences > 1 for arrival in arrivals)
        self._num_shared = 0  # KV slots that sequences see beyond those that there are
        self._last_look_s = 0.0
        self._tally = Tally()
        self._jumps = settings.jumps and not searches

    def run(self, give_up_at_s: float | None = None, stop_at_s: float = float("inf")) -> Outcome:
        """Runs until every request has ended, or the clock is at ``stop_at_s``.

        With ``give_up_at_s`` also until the mean normalized latency is sure to exceed that.
        """
        while self._num_arrived < len(self._arrivals) or self._open:
            if self._clock_s >= stop_at_s:
                return self._outcome(self._waiting_s())
            self._add_arrivals()
            num_steps = self._jump() if self._decoding and self._jumps else 1
            plan = self._scheduler.plan()
            if plan is None:
                self._clock_s = self._arrivals[self._num_arrived].time_s
                continue
            self._step(plan, num_steps)
            if give_up_at_s is not None and self._tally.num_steps % _NUM_STEPS_TO_GIVE_UP == 0:
                waiting_s = self._waiting_s()
                if sum(waiting_s) + self._tally.sum_latencies_s > give_up_at_s * len(self._arrivals):
                    return self._outcome(waiting_s)
        return self._outcome(())

    # --- Events ---

    def _add_arrivals(self) -> None:
        while self._num_arrived < len(self._arrivals):
            arrival = self._arrivals[self._num_arrived]
            if arrival.time_s > self._clock_s:
                return
            if not self._scheduler.num_waiting:
                self._decoding = ()
            group = self._scheduler.add(request_of(arrival, self._num_arrived))
            self._open[group.group_id] = _Open(arrival, group)
            lengths = Lengths(arrival.num_prompt_tokens, arrival.num_output_tokens, arrival.num_sequences)
            self._lengths[group.sequences[0].sequence_id] = lengths
            self._sequences.update((sequence.sequence_id, sequence) for sequence in group.sequences)
            self._num_arrived += 1

    def _jump(self) -> int:
        """Goes through steps whose outcome is certain; how many are to be committed in the next one."""
        sequences = [self._sequences[sequence_id] for sequence_id in self._decoding]
        usage = self._space.usage
        num_free = self._settings.pool.num_blocks - usage.num_used_device_blocks
        paged = isinstance(self._space, BlockSpace)
        limit = longest_jump(sequences, self._settings, num_free if paged else None)
        if limit < 2:
            return 1
        is_full = self._scheduler.num_waiting > 0  # then nobody enters before somebody ends
        is_last = self._num_arrived == len(self._arrivals)
        until_s = self._last_look_s + _LOOK_INTERVAL_S
        if not (is_full or is_last):
            until_s = min(until_s, self._arrivals[self._num_arrived].time_s)
        rows, clock_s = self._num_rows(len(sequences)), self._clock_s
        context = sum(len(sequence.token_ids) for sequence in sequences)
        num_steps = 0
        while num_steps < limit and clock_s < until_s:
            clock_s += self._cost.step_s(
                StepShape(rows, self._scheduler.num_running, 0, context - self._num_shared, self._num_shared)
            )
            context += len(sequences)
            num_steps += 1
        if num_steps < 2:
            return 1
        for sequence in sequences:
            sequence.token_ids += [OUTPUT_TOKEN] * (num_steps - 1)
        self._clock_s = clock_s
        return num_steps

    def _step(self, plan: Plan, num_steps: int) -> None:
        grant = self._space.apply(to_memory(plan, caches_prefixes=self._settings.caches_prefixes))
        step = self._scheduler.apply(to_scheduler(grant))
        moved = plan.forks or plan.released or grant.admitted_group_ids or grant.preempted_group_ids
        if moved and self._shares and isinstance(self._space, BlockSpace):
            self._num_shared = num_shared_slots(self._space)
        self._tally.ran(self._scheduler.num_running, len(step.sequence_ids), num_steps)
        if num_steps == 1 and step.sequence_ids:  # a jump has moved the clock already
            self._clock_s += self._cost.step_s(self._shape(step, grant.changes))
        events = self._scheduler.commit(self._result(step))
        ended = {
            self._sequences[i].group_id
            for i, why in zip(events.sequence_ids, events.finish_reasons, strict=True)
            if why
        }
        self._end({*ended, *events.ended_searches})
        is_settled = not (moved or ended) and not step.num_choices and max(step.num_tokens, default=0) == num_steps
        self._decoding = step.sequence_ids if is_settled else ()
        if self._clock_s - self._last_look_s >= _LOOK_INTERVAL_S:
            self._look()

    def _end(self, group_ids: set[GroupId]) -> None:
        for group_id in group_ids:
            if self._open[group_id].group.is_finished:
                ended = self._open.pop(group_id)
                self._ended.append(ended.arrival)
                for sequence in ended.group.sequences:
                    self._sequences.pop(sequence.sequence_id, None)
        if not isinstance(self._space, StaticBatchSpace) or not self._scheduler.num_running:
            for arrival in self._ended:
                self._tally.returned((self._clock_s - arrival.time_s) / arrival.num_output_tokens)
            self._ended.clear()

    def _look(self) -> None:
        seconds, somebody_waits = self._clock_s - self._last_look_s, self._scheduler.num_waiting > 0
        self._tally.observed(occupancy_of(self._space), seconds, somebody_waits=somebody_waits)
        if self._settings.looks_at_sharing and isinstance(self._space, BlockSpace):
            self._tally.shared([table.blocks for table in self._space.device.by_id.values()])
        self._last_look_s = self._clock_s

    # --- Questions ---

    def _lengths_of(self, sequence_id: memory.SequenceId) -> Lengths:
        return self._lengths[SequenceId(sequence_id)]

    def _num_rows(self, num_sequences: int) -> int:
        """Rows that are computed: a static batch computes those of ended sequences too."""
        return self._space.num_taken if isinstance(self._space, StaticBatchSpace) else num_sequences

    def _shape(self, step: Step, changes: memory.BlockChanges) -> StepShape:
        num_tokens, num_sequences = sum(step.num_tokens), len(step.sequence_ids)
        num_context, num_prompts, num_pairs = sum(step.positions) + num_tokens, 0, 0
        if num_tokens > num_sequences:
            for num, position in zip(step.num_tokens, step.positions, strict=True):
                if num > 1:
                    num_prompts += 1
                    num_pairs += num * position + num * num // 2
                    num_context -= position + num
        num_shared = min(self._num_shared, num_context)
        num_padding = self._num_rows(num_sequences) - num_sequences
        return StepShape(
            num_tokens=num_tokens + num_padding,
            num_requests=self._scheduler.num_running,
            num_prompts=num_prompts,
            num_context_tokens=num_context - num_shared,
            num_shared_tokens=num_shared,
            num_attended_pairs=num_pairs,
            num_swapped_blocks=(len(changes.swap_outs) + len(changes.swap_ins)) // 2,
            num_copied_blocks=len(changes.copies) // 2,
        )

    def _result(self, step: Step) -> StepResult:
        if self._beams is not None:
            return self._beams.result(step)
        samplers = list(compress(step.sequence_ids, step.samples))
        if step.num_choices:
            num_choices = list(compress(step.num_choices, step.samples))
            sequence_ids = [i for i, num in zip(samplers, num_choices, strict=True) for _ in range(num)]
            token_ids = [OUTPUT_TOKEN + choice for num in num_choices for choice in range(num)]
            return StepResult(step.step_id, sequence_ids, token_ids, [0.0] * len(token_ids))
        return StepResult(step.step_id, samplers, [OUTPUT_TOKEN] * len(samplers), [0.0] * len(samplers))

    def _waiting_s(self) -> list[float]:
        """Normalized latencies that the requests in the system have reached already."""
        arrivals = [*(entry.arrival for entry in self._open.values()), *self._ended]
        return [(self._clock_s - arrival.time_s) / arrival.num_output_tokens for arrival in arrivals]

    def _outcome(self, waiting_s: Column[float]) -> Outcome:
        return self._tally.outcome(self._clock_s, self._scheduler.num_preemptions, waiting_s)
