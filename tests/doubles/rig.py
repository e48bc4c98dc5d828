"""A scheduler with its doubles, stepped by hand."""

from collections import defaultdict
from itertools import count

from doubles.model import VOCAB_SIZE, ModelDouble, distribution, expected_output
from doubles.naive_beams import naive_beam_search
from doubles.pool import Pool
from scheduler.core.limits import Limits
from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode
from scheduler.core.prefix_hash import PrefixDomain
from scheduler.core.request import BeamParams, FinishReason, Request, RequestId, StopConditions
from scheduler.core.scheduler import MAX_STEPS_IN_HAND, Scheduler
from scheduler.core.sequence import SequenceGroup
from scheduler.core.shape import MemoryShape, SchedulerConfig
from scheduler.core.steps import Grant, Plan, Step

_request_ids = count(1)


def make_request(
    prompt: list[int] | range,
    max_tokens: int = 4,
    num_choices: int = 1,
    cache_salt: str = "",
    priority: int = 0,
    beams: BeamParams | None = None,
    **stop: object,
) -> Request:
    conditions = StopConditions(max_tokens=max_tokens, **stop)  # type: ignore[arg-type]
    request_id = RequestId(f"r{next(_request_ids)}")
    return Request(
        request_id,
        tuple(prompt),
        conditions,
        num_choices=num_choices,
        cache_salt=cache_salt,
        priority=priority,
        beams=beams,
    )


def make_shape(
    num_blocks: int,
    block_size: int,
    *,
    epoch: int = 1,
    last_step_id: int = 0,
    max_num_seqs: int = 8,
    policy: SchedulingPolicy = SchedulingPolicy.FCFS,
) -> MemoryShape:
    limits = Limits(
        max_model_len=4096,
        vocab_size=VOCAB_SIZE,
        block_size=block_size,
        num_device_blocks=num_blocks,
        max_num_seqs=max_num_seqs,
        policy=policy,
    )
    return MemoryShape(epoch, last_step_id, limits, PrefixDomain(b"checksum"))


class Rig:
    """Steps a scheduler on a pool of ``num_blocks`` blocks and collects what comes out, by group and by choice."""

    def __init__(
        self,
        num_blocks: int = 8,
        block_size: int = 4,
        *,
        budget: int = 16,
        max_seqs: int = 8,
        watermark: int = 0,
        num_host_blocks: int = 0,
        mode: PreemptionMode = PreemptionMode.AUTO,
        policy: SchedulingPolicy = SchedulingPolicy.FCFS,
        overlaps: bool = False,
    ) -> None:
        self.max_in_hand = MAX_STEPS_IN_HAND if overlaps else 1
        self.pool = Pool(num_blocks, block_size, watermark, num_host_blocks)
        self.model = ModelDouble(block_size)
        shape = make_shape(num_blocks, block_size, max_num_seqs=max_seqs, policy=policy)
        self.scheduler = Scheduler(SchedulerConfig(budget, max_seqs, mode, policy), shape)
        self.choices: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.ended_searches: list[int] = []  # group ids
        self.reasons: dict[int, FinishReason] = {}  # of the choice that ended last
        self.plan = Plan(0)
        self.grant: Grant | None = None
        self.computed = Step(0, 0, None)  # type: ignore[arg-type]

    @property
    def outputs(self) -> dict[int, list[int]]:
        """Of the first choice of each group that has any."""
        return {group_id: choices[0] for group_id, choices in self.choices.items() if choices}

    def add(
        self, prompt: list[int] | range, max_tokens: int = 4, num_choices: int = 1, cache_salt: str = "", **more: object
    ) -> SequenceGroup:
        return self.scheduler.add(make_request(prompt, max_tokens, num_choices, cache_salt, **more))

    def step(self) -> bool:
        """Hands steps out, then computes the oldest; ``False`` if there was nothing to do."""
        while len(self.scheduler.unanswered_steps) < self.max_in_hand and (plan := self.scheduler.plan()) is not None:
            self.hand_out(plan)
        if not self.scheduler.unanswered_steps:
            return False
        self.commit()
        return True

    def hand_out(self, plan: Plan) -> None:
        self.plan = plan
        self.grant = self.pool.grant(plan)
        self.computed = self.scheduler.apply(self.grant)

    def commit_when_due(self, plan: Plan | None) -> bool:
        """Commits the oldest step if nothing else can be done, after ``plan`` was handed out; whether it did."""
        num = len(self.scheduler.unanswered_steps)
        is_due = num == self.max_in_hand or (num > 0 and plan is None)
        if is_due:
            self.commit()
        return is_due

    def commit(self) -> None:
        """Computes the oldest step in hand."""
        sequences = {s.sequence_id: s for group in self.scheduler.groups for s in group.sequences}
        events = self.scheduler.commit(self.model.execute(self.scheduler.unanswered_steps[0]))
        self.ended_searches += events.ended_searches
        for sequence_id, token_id, reason in zip(
            events.sequence_ids, events.token_ids, events.finish_reasons, strict=True
        ):
            sequence = sequences[sequence_id]
            self.choices[sequence.group_id][sequence.choice_index].append(token_id)
            if reason is not None:
                self.reasons[sequence.group_id] = reason
        self.scheduler.check()

    def run(self, max_steps: int = 2000) -> int:
        """Steps until nothing is to do; how many steps that took."""
        for num_steps in range(max_steps):
            if not self.step():
                return num_steps
        raise AssertionError(f"still busy after {max_steps} steps")

    def check_choices(self, group: SequenceGroup) -> None:
        """Every choice of ``group`` has the output it has alone."""
        request = group.request
        for choice in range(request.num_choices):
            expected = expected_output(
                request.prompt_token_ids, request.stop.max_tokens, request.stop.stop_token_ids, choice
            )
            assert self.choices[group.group_id][choice] == expected

    def check_search(self, group: SequenceGroup) -> None:
        """The search of ``group`` is over and has found what it finds alone."""
        request, search = group.request, group.search
        assert request.beams is not None
        assert search is not None
        assert self.ended_searches.count(group.group_id) == 1
        expected = naive_beam_search(
            distribution,
            request.prompt_token_ids,
            request.stop.max_tokens,
            request.beams,
            request.stop.ending_token_ids,
            request.stop.min_tokens,
        )
        assert [hypothesis.beam.token_ids for hypothesis in search.hypotheses] == [output for output, _ in expected]
        for hypothesis, (_, score) in zip(search.hypotheses, expected, strict=True):
            assert abs(hypothesis.score - score) < 1e-9

    def check_idle(self) -> None:
        """The idle invariant: nobody holds anything."""
        self.scheduler.check()
        assert self.scheduler.groups == ()
        assert self.pool.is_idle
        assert self.model.tables == {}
