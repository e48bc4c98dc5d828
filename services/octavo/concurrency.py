"""Run coroutines side by side."""

import asyncio
from collections.abc import Coroutine

from octavo.errors import OctavoError


async def together(*coroutines: Coroutine[None, None, None]) -> None:
    """Run all until the last ends; the first ``OctavoError`` ends the others and is raised by itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except* OctavoError as faults:
        first: BaseException = faults
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
