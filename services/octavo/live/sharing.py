"""Figure 15 live: blocks that outputs and beams of one prompt share (paper §6.3)."""

from octavo.live.lab import Lab, Pool
from octavo.live.loads import Scale, burst
from octavo.live.report import Report, Row
from octavo.simulation.lengths import Dataset
from octavo.simulation.paper import printed
from octavo.simulation.spaces import SpaceName

WIDTHS = (2, 4, 6)
SCALE = Scale(4)
NUM_SLOTS = 1024


def fields_of(kind: str, width: int) -> dict[str, object]:
    """Of a request for ``width`` sequences. A search cannot be streamed, and ends at ``max_tokens``."""
    if kind == "parallel_sampling":
        return {"n": width, "temperature": 1.0}
    absent = dict.fromkeys(("stream", "stream_options"))
    return {"n": width, "use_beam_search": True, "early_stopping": "never", **absent}


async def memory_saved(lab: Lab) -> Report:
    """One cluster; for each width a few requests with the lengths of Alpaca, a quarter like the blocks."""
    lengths = SCALE.lengths(Dataset.ALPACA, lab.number(12, 4))
    paper = printed()["fig15_memory_saving_percent_OPT13B_Alpaca"]
    rows = []
    async with lab.cluster(SpaceName.PAGED, Pool(NUM_SLOTS, SCALE.block_size, SCALE.max_model_len), lengths) as cluster:
        for kind in ("parallel_sampling", "beam_search"):
            for width in WIDTHS:
                lab.tell(f"{kind}, {width}")
                measured = await cluster.run(burst(lengths, f"{kind} {width}"), fields_of(kind, width))
                saved = 100 * measured.samples.shared_share
                rows.append(Row(f"{kind} {width}", saved, paper[kind][str(width)], "%"))
    load = (
        f"{len(lengths)} requests at once with Alpaca's lengths / {SCALE.divisor}, "
        f"{NUM_SLOTS} slots in blocks of {SCALE.block_size}"
    )
    return Report("sharing", "memory that sharing saves (Fig. 15)", load, tuple(rows))
