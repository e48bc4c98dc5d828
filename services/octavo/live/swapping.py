"""Figure 19b live: giving way by swapping or by recomputation, by block size (paper §7.3)."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import median

from octavo.live.lab import Lab, Pool
from octavo.live.loads import burst
from octavo.live.report import Report, Row
from octavo.settings import PreemptionMode
from octavo.simulation.lengths import Dataset, Length
from octavo.simulation.paper import curves
from octavo.simulation.spaces import SpaceName

BLOCK_SIZES = (16, 64, 256)  # the paper's; scaled like the lengths
MODES = (PreemptionMode.RECOMPUTE, PreemptionMode.SWAP)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one way to give way, at one block size."""

    normalized_s: float
    num_preemptions: int


async def swap_or_recompute(lab: Lab) -> Report:
    """For each block size two clusters in turns, on requests that outgrow the pool."""
    lengths = lab.scale.lengths(Dataset.SHAREGPT, lab.number(12, 8))
    num_slots = lab.scale.max_model_len
    paper = {mode: dict(curves("fig19b")[mode.value.capitalize()].points) for mode in MODES}
    rows = []
    for size in BLOCK_SIZES:
        pool = Pool(num_slots, max(1, size // lab.scale.divisor), lab.scale.max_model_len, num_host_slots=num_slots)
        ours = await _in_turns(lab, pool, lengths)
        recompute, swap = (ours[mode].normalized_s for mode in MODES)
        theirs = paper[PreemptionMode.RECOMPUTE][size] / paper[PreemptionMode.SWAP][size]
        name = f"blocks of {size} ({pool.block_size} here)"
        rows.append(Row(f"latency, recompute / swap, {name}", recompute / swap, theirs, "x"))
        rows += [
            Row(f"gave way by {mode.value}, {name}", float(outcome.num_preemptions), None, "requests")
            for mode, outcome in ours.items()
        ]
    load = (
        f"{len(lengths)} requests at once with ShareGPT's lengths / {lab.scale.divisor}, "
        f"{num_slots} slots on the device and as many on the host"
    )
    return Report("swapping", "recomputation over swapping (Fig. 19b)", load, tuple(rows))


async def _in_turns(lab: Lab, pool: Pool, lengths: Sequence[Length]) -> dict[PreemptionMode, Outcome]:
    async with AsyncExitStack() as stack:
        clusters = {
            mode: await stack.enter_async_context(
                lab.cluster(SpaceName.PAGED, replace(pool, preemption_mode=mode), lengths)
            )
            for mode in MODES
        }
        latencies: dict[PreemptionMode, list[float]] = {mode: [] for mode in MODES}
        for turn in range(lab.number(2, 1)):
            for mode, cluster in clusters.items():
                lab.tell(f"{mode.value}, blocks of {pool.block_size}, turn {turn + 1}")
                latencies[mode].append((await cluster.run(burst(lengths, mode.value))).normalized_s)
        return {
            mode: Outcome(median(latencies[mode]), await cluster.num_preemptions())
            for mode, cluster in clusters.items()
        }
