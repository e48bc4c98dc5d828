"""Heavy work beside the steps."""

import asyncio
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_USUAL_SWITCH_S = 0.005
_QUICK_SWITCH_S = 0.0005


async def beside(work: Callable[[], T]) -> T:
    """Runs ``work`` on a thread; a step that wants the interpreter meanwhile gets it ten times as soon as usual.

    Only meanwhile: in a process without such work, quick switching would double the latency of a step.
    """
    sys.setswitchinterval(_QUICK_SWITCH_S)
    try:
        return await asyncio.to_thread(work)
    finally:
        sys.setswitchinterval(_USUAL_SWITCH_S)
