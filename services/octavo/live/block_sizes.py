"""Figure 18b live: what the size of a block does to throughput (paper §7.2)."""

from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import fmean

from octavo.live.lab import Lab
from octavo.live.loads import burst
from octavo.live.report import Report, Row
from octavo.simulation.lengths import Dataset
from octavo.simulation.paper import curves
from octavo.simulation.spaces import SpaceName

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
QUICK_BLOCK_SIZES = (1, 16, 256)
REFERENCE = 16
NUM_SLOTS = 4096


async def block_sizes(lab: Lab) -> Report:
    """Output tokens a second with each size, over those of a cluster with blocks of 16 just before and after."""
    lengths = lab.scale.lengths(Dataset.SHAREGPT, lab.number(5, 3))
    workload = burst(lengths, "block sizes")
    paper = dict(curves("fig18b")["ShareGPT"].points)
    pool = replace(lab.pool, num_slots=NUM_SLOTS)
    rows = []
    async with AsyncExitStack() as stack:
        reference = await stack.enter_async_context(
            lab.cluster(SpaceName.PAGED, replace(pool, block_size=REFERENCE), lengths)
        )
        before = await reference.run(workload)
        for size in QUICK_BLOCK_SIZES if lab.is_quick else BLOCK_SIZES:
            if size == REFERENCE:
                continue
            async with lab.cluster(SpaceName.PAGED, replace(pool, block_size=size), lengths) as cluster:
                measured = await cluster.run(workload)
            after = await reference.run(workload)
            usual = fmean((before.summary.output_tokens_per_s, after.summary.output_tokens_per_s))
            ratio = measured.summary.output_tokens_per_s / usual
            rows.append(Row(f"blocks of {size} / blocks of {REFERENCE}", ratio, paper[REFERENCE] / paper[size], "x"))
            before = after
    load = (
        f"{len(lengths)} requests at once with ShareGPT's lengths / {lab.scale.divisor}, {NUM_SLOTS} slots, "
        "which none waits for; blocks are not scaled. The paper's is the inverse ratio of latencies under load"
    )
    return Report("block-sizes", "throughput by block size (Fig. 18b)", load, tuple(rows))
