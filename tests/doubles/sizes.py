"""Sizes of a pool and a batch, drawn by the property tests of scheduling."""

from dataclasses import dataclass

from doubles.rig import Rig
from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode

BLOCK_SIZE = 4


@dataclass
class Sizes:
    """Every job must fit ``num_blocks``: the test that draws them says why."""

    num_blocks: int
    num_host_blocks: int
    budget: int
    watermark: int
    mode: PreemptionMode
    overlaps: bool

    def rig(self, max_seqs: int, policy: SchedulingPolicy = SchedulingPolicy.FCFS) -> Rig:
        return Rig(
            self.num_blocks,
            BLOCK_SIZE,
            budget=self.budget,
            max_seqs=min(self.budget, max_seqs),
            watermark=self.watermark,
            num_host_blocks=self.num_host_blocks,
            mode=self.mode,
            policy=policy,
            overlaps=self.overlaps,
        )
