"""Figures 2, 12a and 13 live: paged memory beside the three Orcas on the lengths of ShareGPT (paper §6.2)."""

import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from statistics import fmean

from octavo.live.cluster import LiveCluster, Measured
from octavo.live.equal_latency import Point, common_latency, rate_at
from octavo.live.lab import Lab
from octavo.live.loads import burst
from octavo.live.report import Report, Row
from octavo.live.samples import Part
from octavo.simulation.lengths import Dataset, Length
from octavo.simulation.paper import SERIES_OF, curves, printed
from octavo.simulation.spaces import SpaceName

SPACES = (SpaceName.MAX, SpaceName.POW2, SpaceName.ORACLE, SpaceName.PAGED)
QUICK_SPACES = (SpaceName.MAX, SpaceName.PAGED)
LOADS = (0.6, 1.5)  # of the rate that a system reached in the burst
NUM_PACED = 12  # requests of each run at a rate
KINDS: dict[Part, str] = {
    "filled": "token_states",
    "reserved": "reservation",
    "internal": "internal_frag",
    "external": "external_frag_and_others",
}
Clusters = Mapping[SpaceName, LiveCluster]
Bursts = Mapping[SpaceName, Measured]
Rates = Mapping[SpaceName, float]  # requests a second
Curves = Mapping[SpaceName, Sequence[Point]]


async def compare_spaces(lab: Lab) -> list[Report]:
    """Clusters with all spaces side by side, one run at a time and in turns."""
    spaces = QUICK_SPACES if lab.is_quick else SPACES
    lengths = lab.scale.known_lengths(Dataset.SHAREGPT, lab.number(20, 8))
    load = _described(lab, lengths)
    async with AsyncExitStack() as stack:
        clusters = {space: await stack.enter_async_context(lab.cluster(space, lab.pool, lengths)) for space in spaces}
        bursts = await _bursts(lab, clusters, lengths)
        reports = [_waste(bursts, load), _batched(bursts, load)]
        if not lab.is_quick:
            reached = {space: run.summary.requests_per_s for space, run in bursts.items()}
            reports.append(rates(reached, await _curves(lab, clusters, reached, lengths), load))
    return reports


def _described(lab: Lab, lengths: Sequence[Length]) -> str:
    pool = lab.pool
    return (
        f"{len(lengths)} requests with ShareGPT's lengths / {lab.scale.divisor} "
        f"({fmean(n.num_prompt_tokens for n in lengths):.0f} in, {fmean(n.num_output_tokens for n in lengths):.0f} out "
        f"in the mean), context {pool.max_model_len}, {pool.num_slots} slots in blocks of {pool.block_size}"
    )


async def _bursts(lab: Lab, clusters: Clusters, lengths: Sequence[Length]) -> Bursts:
    """All requests at once: memory is full from the first step until nobody waits."""
    found = {}
    for space, cluster in clusters.items():
        lab.tell(f"{space.value}: all at once")
        found[space] = await cluster.run(burst(lengths, f"{space.value} burst"))
    return found


def _waste(bursts: Bursts, load: str) -> Report:
    paper = printed()["fig2_kv_cache_usage_percent"]
    rows = [
        Row(f"{space.value} {kind}", 100 * run.samples.share(kind), paper[SERIES_OF[space]].get(theirs), "%")
        for space, run in bursts.items()
        for kind, theirs in KINDS.items()
    ]
    used = 100 * bursts[SpaceName.PAGED].samples.share("filled", "allocated")
    rows.append(Row("paged filled, of what is allocated", used, paper["vLLM"]["token_states"], "%"))
    return Report("waste", "where the KV slots are while requests wait (Fig. 2)", load, tuple(rows))


def _batched(bursts: Bursts, load: str) -> Report:
    """As ratios: the pool is smaller than the paper's, in sequences."""
    paper = printed()["fig13_batched_requests"]["OPT-13B ShareGPT 2 req/s"]
    ours = {space: run.samples.mean_running for space, run in bursts.items()}
    rows = [Row(f"{space.value}", number, paper[SERIES_OF[space]], "requests") for space, number in ours.items()]
    rows += [
        Row(
            f"paged / {space.value}",
            ours[SpaceName.PAGED] / number,
            paper[SERIES_OF[SpaceName.PAGED]] / paper[SERIES_OF[space]],
            "x",
        )
        for space, number in ours.items()
        if space is not SpaceName.PAGED
    ]
    return Report("batched", "requests that run at once (Fig. 13)", load, tuple(rows))


async def _curves(lab: Lab, clusters: Clusters, reached: Rates, lengths: Sequence[Length]) -> Curves:
    """Normalized latency with Poisson arrivals at shares of what each system can do."""
    found: dict[SpaceName, list[Point]] = {space: [] for space in clusters}
    for share in LOADS:
        for space, cluster in clusters.items():
            rate = share * reached[space]
            lab.tell(f"{space.value}: {rate:.2f} requests/s")
            paced = burst(lengths[:NUM_PACED], f"{space.value} paced").paced(rate, random.Random(0))  # noqa: S311 - no secret
            found[space].append((rate, (await cluster.run(paced)).normalized_s))
    return found


def rates(reached: Rates, found: Curves, load: str) -> Report:
    """How many more requests a second paged memory takes, at a latency that all systems come to and all at once."""
    paper = {space: curves("fig12a")[SERIES_OF[space]].knee() for space in found}
    rows = [
        Row(f"{space.value} at {rate:.2f} req/s", seconds, None, "s/token")
        for space, points in found.items()
        for rate, seconds in points
    ]
    others = [space for space in found if space is not SpaceName.PAGED]
    latency = common_latency(found.values())
    at = {space: rate_at(points, latency) for space, points in found.items()}
    for space in others:
        if ratio := at[SpaceName.PAGED].over(at[space]):
            name = f"paged / {space.value}, rate at {latency:.2f} s/token, {ratio.bound}"
            rows.append(Row(name.rstrip(", "), ratio.per_s, paper[SpaceName.PAGED] / paper[space], "x"))
    rows += [
        Row(f"paged / {space.value}, requests/s all at once", reached[SpaceName.PAGED] / reached[space], None, "x")
        for space in others
    ]
    return Report("rates", "request rates at equal latency (Fig. 12a)", load, tuple(rows))
