"""All comparisons by name."""

from collections.abc import Awaitable, Callable, Sequence

from octavo.live.baselines import compare_spaces
from octavo.live.block_sizes import block_sizes
from octavo.live.lab import Lab
from octavo.live.loads import Scale
from octavo.live.prefix import shared_prefix
from octavo.live.report import Report
from octavo.live.sharing import memory_saved
from octavo.live.swapping import swap_or_recompute

__all__ = ["COMPARISONS", "Lab", "Scale", "compare"]


def _one(compare: Callable[[Lab], Awaitable[Report]]) -> Callable[[Lab], Awaitable[Sequence[Report]]]:
    async def compare_all(lab: Lab) -> Sequence[Report]:
        return [await compare(lab)]

    return compare_all


COMPARISONS: dict[str, Callable[[Lab], Awaitable[Sequence[Report]]]] = {
    "spaces": compare_spaces,
    "sharing": _one(memory_saved),
    "prefix": _one(shared_prefix),
    "swapping": _one(swap_or_recompute),
    "block-sizes": _one(block_sizes),
}


async def compare(names: Sequence[str], lab: Lab) -> list[Report]:
    """Runs comparisons one after the other. Raises ``OctavoError``."""
    return [report for name in names for report in await COMPARISONS[name](lab)]
