"""How many blocks sharing saves, measured as the paper does (§6.3): (blocks without sharing - blocks used) / without.

The cores of the scheduler and the kvmanager serve parallel sampling through their wire messages, on a pool as large as
the paper's for OPT-13B (Table 1); only the model is left out, whose tokens are drawn at random. Prompt and output
lengths follow the histograms of Figure 11, independently of each other, since only these are public; all choices of a
request are equally long, as in the paper. Counts are summed over all steps after the pool has filled once.

``python benchmarks/sharing_bench.py [--steps 5000] [--seed 1]``
"""

import argparse
import csv
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kvmanager.adapters.protobuf import grant_message, plan_of
from kvmanager.core.block_space import BlockSpace
from kvmanager.core.plan import PoolShape
from kvmanager.v1 import kvmanager_pb2 as pb
from scheduler.adapters.grpc_memory import grant_from_wire, plan_to_wire
from scheduler.core.limits import Limits
from scheduler.core.prefix_hash import PrefixDomain
from scheduler.core.request import Request, RequestId, StopConditions
from scheduler.core.scheduler import Scheduler
from scheduler.core.shape import MemoryShape, SchedulerConfig
from scheduler.core.steps import Step, StepResult

DATA = Path(__file__).parent / "data" / "vllm-paper"
BLOCK_SIZE = 16
NUM_BLOCKS = 15_700 // BLOCK_SIZE  # Table 1: room for 15.7 K tokens beside OPT-13B on an A100
VOCAB_SIZE = 50_272
MAX_LEN = 2048
NUM_WAITING = 4  # requests that are always ready to enter
PAPER = {  # savings in percent by choices: Figure 15a for Alpaca; for ShareGPT the text gives the range alone
    "Alpaca": {2: "6.09", 4: "8.53", 6: "9.79"},
    "ShareGPT": {2: "16.2 …", 4: "…", 6: "… 30.5"},
}


class Lengths:
    """Draws prompt and output lengths in tokens."""

    def __init__(self, dataset: str, generator: random.Random) -> None:
        self._generator = generator
        with (DATA / "fig11_length_histograms.csv").open() as file:
            rows = list(csv.DictReader(file))
        self._sides = []
        for side in ("input", "output"):
            bins = [row for row in rows if row["dataset_side"] == f"{dataset}_{side}"]
            edges = [(float(row["bin_lo_tokens"]), float(row["bin_hi_tokens"])) for row in bins]
            self._sides.append((edges, [float(row["probability"]) for row in bins]))

    def draw(self) -> tuple[int, int]:
        """Lengths of one prompt and its output, together less than the model's context."""
        while True:
            prompt, output = (self._draw(edges, weights) for edges, weights in self._sides)
            if prompt + output < MAX_LEN:
                return prompt, output

    def _draw(self, edges: list[tuple[float, float]], weights: list[float]) -> int:
        low, high = self._generator.choices(edges, weights)[0]
        return max(1, round(self._generator.uniform(low, high)))


class Server:
    """The cores of scheduler and kvmanager, and a model that draws tokens at random."""

    def __init__(self, lengths: Lengths, num_choices: int, generator: random.Random) -> None:
        self._lengths = lengths
        self._num_choices = num_choices
        self._generator = generator
        self._request_ids: Iterator[int] = count(1)
        self.space = BlockSpace.empty(PoolShape(BLOCK_SIZE, NUM_BLOCKS, NUM_BLOCKS, NUM_BLOCKS // 100))
        limits = Limits(MAX_LEN, VOCAB_SIZE, BLOCK_SIZE, NUM_BLOCKS, max_num_seqs=512)
        self.scheduler = Scheduler(SchedulerConfig(2048, 512), MemoryShape(1, 0, limits, PrefixDomain(b"bench")))

    def step(self) -> None:
        """One whole step, with enough requests waiting."""
        while self.scheduler.num_waiting < NUM_WAITING:
            self.scheduler.add(self._request())
        plan = self.scheduler.plan()
        assert plan is not None, "requests wait"
        message = pb.Plan.FromString(plan_to_wire(plan).SerializeToString())
        grant = grant_message(self.space.apply(plan_of(message)))
        self.scheduler.commit(self._result(self.scheduler.apply(grant_from_wire(grant))))

    def _request(self) -> Request:
        num_prompt_tokens, max_tokens = self._lengths.draw()
        prompt = tuple(self._generator.choices(range(VOCAB_SIZE), k=num_prompt_tokens))
        request_id = RequestId(str(next(self._request_ids)))
        return Request(request_id, prompt, StopConditions(max_tokens), num_choices=self._num_choices)

    def _result(self, step: Step) -> StepResult:
        num_choices = step.num_choices or [1] * len(step.sequence_ids)
        drawn = zip(step.sequence_ids, step.samples, num_choices, strict=True)
        sequence_ids = [sequence_id for sequence_id, samples, num in drawn if samples for _ in range(num)]
        token_ids = self._generator.choices(range(VOCAB_SIZE), k=len(sequence_ids))
        return StepResult(step.step_id, sequence_ids, token_ids, [0.0] * len(sequence_ids))


@dataclass
class Measured:
    """Sums over steps, in blocks."""

    num_without_sharing: int = 0
    num_used: int = 0
    num_groups: int = 0
    num_steps: int = 0

    @property
    def saving_percent(self) -> float:
        """The paper's measure."""
        return 100 * (self.num_without_sharing - self.num_used) / self.num_without_sharing

    def add(self, server: Server) -> None:
        """Counts the pool as it is now: table entries, and the blocks behind them."""
        references = Counter(block for table in server.space.snapshot().device_tables for block in table.blocks)
        self.num_without_sharing += references.total()
        self.num_used += len(references)
        self.num_groups += server.scheduler.num_running
        self.num_steps += 1


def measure(dataset: str, num_choices: int, num_steps: int, seed: int) -> tuple[Measured, Server]:
    """Serves for ``num_steps`` steps after the first group had to give way."""
    generator = random.Random(f"{seed} {dataset}")
    server = Server(Lengths(dataset, generator), num_choices, generator)
    while not server.scheduler.num_preemptions:
        server.step()
    measured = Measured()
    for _ in range(num_steps):
        server.step()
        measured.add(server)
    faults = server.space.check()
    assert not faults, faults
    return measured, server


def main() -> None:
    """Prints the measured savings beside the paper's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5000, help="steps that are measured for each line")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    table = Table(title=f"Blocks saved by sharing, parallel sampling, {NUM_BLOCKS} blocks of {BLOCK_SIZE}")
    for column in ("lengths", "choices", "saved %", "paper %", "requests at once", "swapped out"):
        table.add_column(column, justify="left" if column == "lengths" else "right")
    for dataset, printed in PAPER.items():
        for num_choices, paper in printed.items():
            measured, server = measure(dataset, num_choices, arguments.steps, arguments.seed)
            requests = f"{measured.num_groups / measured.num_steps:.1f}"
            saved = f"{measured.saving_percent:.2f}"
            table.add_row(dataset, str(num_choices), saved, paper, requests, str(server.scheduler.num_swaps))
    Console().print(table)


if __name__ == "__main__":
    main()
