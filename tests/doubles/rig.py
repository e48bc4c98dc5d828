"""A scheduler with its doubles, stepped by hand."""

from collections import defaultdict
from itertools import count

from doubles.model import VOCAB_SIZE, ModelDouble
from doubles.pool import PoolDouble
from scheduler.core.limits import Limits
from scheduler.core.prefix_hash import PrefixDomain
from scheduler.core.request import FinishReason, Request, RequestId, StopConditions
from scheduler.core.scheduler import Scheduler
from scheduler.core.sequence import SequenceGroup
from scheduler.core.shape import MemoryShape, SchedulerConfig
from scheduler.core.steps import Grant, Plan, Step

_request_ids = count(1)


def make_request(prompt: list[int] | range, max_tokens: int = 4, **stop: object) -> Request:
    conditions = StopConditions(max_tokens=max_tokens, **stop)  # type: ignore[arg-type]
    return Request(RequestId(f"r{next(_request_ids)}"), tuple(prompt), conditions)


def make_shape(num_blocks: int, block_size: int, *, epoch: int = 1, last_step_id: int = 0) -> MemoryShape:
    limits = Limits(max_model_len=4096, vocab_size=VOCAB_SIZE, block_size=block_size, num_device_blocks=num_blocks)
    return MemoryShape(epoch, last_step_id, limits, PrefixDomain(b"checksum"))


class Rig:
    """Steps a scheduler on a pool of ``num_blocks`` blocks and collects what comes out, by group."""

    def __init__(
        self, num_blocks: int = 8, block_size: int = 4, *, budget: int = 16, max_seqs: int = 8, watermark: int = 0
    ) -> None:
        self.pool = PoolDouble(num_blocks, block_size, watermark)
        self.model = ModelDouble(block_size)
        self.scheduler = Scheduler(SchedulerConfig(budget, max_seqs), make_shape(num_blocks, block_size))
        self.outputs: dict[int, list[int]] = defaultdict(list)
        self.reasons: dict[int, FinishReason] = {}
        self.plan = Plan(0)
        self.grant: Grant | None = None
        self.computed = Step(0, 0, None)  # type: ignore[arg-type]

    def add(self, prompt: list[int] | range, max_tokens: int = 4, **stop: object) -> SequenceGroup:
        return self.scheduler.add(make_request(prompt, max_tokens, **stop))

    def step(self) -> bool:
        """One whole step; ``False`` if there was nothing to do."""
        plan = self.scheduler.plan()
        if plan is None:
            return False
        self.plan = plan
        self.grant = self.pool.grant(plan)
        self.computed = self.scheduler.apply(self.grant)
        self.commit()
        return True

    def commit(self) -> None:
        groups = {s.sequence_id: group.group_id for group in self.scheduler.groups for s in group.sequences}
        events = self.scheduler.commit(self.model.execute(self.computed))
        for sequence_id, token_id, reason in zip(
            events.sequence_ids, events.token_ids, events.finish_reasons, strict=True
        ):
            self.outputs[groups[sequence_id]].append(token_id)
            if reason is not None:
                self.reasons[groups[sequence_id]] = reason
        self.scheduler.check()

    def run(self, max_steps: int = 2000) -> int:
        """Steps until nothing is to do; how many steps that took."""
        for num_steps in range(max_steps):
            if not self.step():
                return num_steps
        raise AssertionError(f"still busy after {max_steps} steps")

    def check_idle(self) -> None:
        """The idle invariant: nobody holds anything."""
        self.scheduler.check()
        assert self.scheduler.groups == ()
        assert self.pool.tables == {}
        assert len(self.pool.free) == self.pool.num_blocks
        assert self.model.tables == {}
