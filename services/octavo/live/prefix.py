"""Figure 16 live: translations behind a prefix of one or five examples (paper §6.4)."""

from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import median

from octavo.bench.workload import Passage, RequestShape, Workload
from octavo.live.cluster import LiveCluster
from octavo.live.lab import Lab, Pool
from octavo.live.loads import SHARED, Scale, burst
from octavo.live.report import Report, Row
from octavo.simulation.lengths import Dataset, Length
from octavo.simulation.paper import printed
from octavo.simulation.spaces import SpaceName

SHOTS = {"1_shot_80_tokens": 80, "5_shot_341_tokens": 341}
SPACES = (SpaceName.ORACLE, SpaceName.PAGED)
MAX_MODEL_LEN, BLOCK_SIZE, NUM_SLOTS = 512, 16, 4096


async def shared_prefix(lab: Lab) -> Report:
    """Requests a second of paged memory with its prefix cache, over those of Orca (Oracle); lengths are the paper's."""
    paper = printed()["shared_prefix_speedup_vs_orca_oracle"]
    rows = []
    sentences = Scale(1).known_lengths(Dataset.TRANSLATION, lab.number(6, 3))
    for name, num_shared in SHOTS.items():
        lengths = [
            replace(sentence, num_prompt_tokens=sentence.num_prompt_tokens + num_shared) for sentence in sentences
        ]
        pool = Pool(NUM_SLOTS, BLOCK_SIZE, MAX_MODEL_LEN)
        async with AsyncExitStack() as stack:
            clusters = {space: await stack.enter_async_context(lab.cluster(space, pool, lengths)) for space in SPACES}
            rates: dict[SpaceName, list[float]] = {space: [] for space in SPACES}
            for turn in range(lab.number(2, 1)):
                for space, cluster in clusters.items():
                    lab.tell(f"{space.value}: prefix of {num_shared} tokens, turn {turn + 1}")
                    rates[space].append(await _requests_per_s(cluster, lengths, num_shared))
        ours = median(rates[SpaceName.PAGED]) / median(rates[SpaceName.ORACLE])
        rows.append(Row(name.replace("_", " "), ours, paper[name], "x"))
    load = (
        f"{len(sentences)} translations at once, {NUM_SLOTS} slots in blocks of {BLOCK_SIZE}; "
        "the paper's is the ratio of rates at 0.5 s/token"
    )
    return Report("prefix", "speed-up by a shared prefix, over Orca (Oracle) (Fig. 16)", load, tuple(rows))


async def _requests_per_s(cluster: LiveCluster, lengths: list[Length], num_shared: int) -> float:
    """With the prefix computed before, as the paper's was."""
    first = RequestShape((Passage(SHARED, num_shared), Passage("first", 1)), num_output_tokens=1)
    await cluster.run(Workload("prefix", (first,), max_concurrency=None))
    measured = await cluster.run(burst(lengths, "translations", num_shared), has_new_text=False)
    return measured.summary.requests_per_s
