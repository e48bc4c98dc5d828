"""Where the KV slots of a running cluster are, again and again while it is measured."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal

import aiohttp

from octavo.admin_client import AdminClient
from octavo.errors import AdminRefused

INTERVAL_S = 0.3
REQUESTS = re.compile(r'^octavo_requests\{state="(\w+)"\} (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Slots:
    """Of a whole pool, as the paper's Fig. 2 divides them."""

    num_slots: int
    filled: int
    reserved: int
    internal: int

    @property
    def allocated(self) -> int:
        """In blocks or chunks that somebody holds."""
        return self.filled + self.reserved + self.internal

    @property
    def external(self) -> int:
        """In nobody's."""
        return self.num_slots - self.allocated


Part = Literal["num_slots", "allocated", "filled", "reserved", "internal", "external"]


@dataclass(frozen=True, slots=True)
class Look:
    """The memory at one moment; sharing is 0 where it is not told."""

    slots: Slots
    num_logical_blocks: int = 0  # table entries of all sequences
    num_physical_blocks: int = 0  # blocks behind them


@dataclass(frozen=True, slots=True)
class Sample:
    """The memory and the requests at one moment."""

    num_running: int
    num_waiting: int
    memory: Look


Looker = Callable[[], Look]


def paged_looker(admin: AdminClient, num_slots: int, block_size: int) -> Looker:
    """Asks the kvmanager, by the admin API, for every block that a sequence holds."""

    def look() -> Look:
        blocks = list(admin.pages("pools/default/blocks", "blocks", state="used"))
        filled = sum(block["num_filled_slots"] for block in blocks)
        slots = Slots(num_slots, filled, reserved=len(blocks) * block_size - filled, internal=0)
        return Look(slots, sum(block["reference_count"] for block in blocks), len(blocks))

    return look


def baseline_looker(occupancy: Path) -> Looker:
    """Reads what ``kvmanager.baseline`` told after its last step."""

    def look() -> Look:
        return Look(Slots(**json.loads(occupancy.read_text())))

    return look


@dataclass(slots=True)
class Samples:
    """What was seen so far."""

    all: list[Sample] = field(default_factory=list)

    @property
    def under_load(self) -> Sequence[Sample]:
        """Those at which somebody waited for memory; all with somebody running if there is none."""
        waiting = [sample for sample in self.all if sample.num_waiting and sample.num_running]
        return waiting or [sample for sample in self.all if sample.num_running]

    def share(self, part: Part, of: Part = "num_slots") -> float:
        """A part of the slots under load, as a share of another; 0 if nothing was seen."""
        whole = sum(getattr(sample.memory.slots, of) for sample in self.under_load)
        return sum(getattr(sample.memory.slots, part) for sample in self.under_load) / whole if whole else 0.0

    @property
    def mean_running(self) -> float:
        """Requests that ran at once, under load."""
        return fmean(sample.num_running for sample in self.under_load) if self.under_load else 0.0

    @property
    def shared_share(self) -> float:
        """Blocks that sharing saved, of those that would have been needed without (paper §6.3)."""
        logical = sum(sample.memory.num_logical_blocks for sample in self.all)
        return 1.0 - sum(sample.memory.num_physical_blocks for sample in self.all) / logical if logical else 0.0


@asynccontextmanager
async def sampling(session: aiohttp.ClientSession, look: Looker) -> AsyncIterator[Samples]:
    """Looks until the end of the block."""
    samples = Samples()
    looking = asyncio.create_task(_look_on(session, look, samples))
    try:
        yield samples
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


async def _look_on(session: aiohttp.ClientSession, look: Looker, samples: Samples) -> None:
    while True:
        await asyncio.sleep(INTERVAL_S)
        with contextlib.suppress(aiohttp.ClientError, AdminRefused, OSError):  # the next look may succeed
            states = await _request_states(session)
            memory = await asyncio.to_thread(look)
            samples.all.append(Sample(int(states.get("running", 0)), int(states.get("waiting", 0)), memory))


async def _request_states(session: aiohttp.ClientSession) -> dict[str, float]:
    async with session.get("/metrics") as answer:
        return {state: float(count) for state, count in REQUESTS.findall(await answer.text())}
