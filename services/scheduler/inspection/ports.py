"""Whom administration asks."""

from collections.abc import Sequence
from typing import Protocol

from scheduler.inspection.audits import Audit
from scheduler.inspection.blocks import BlockPage, BlockQuery, PrefixPage, SequenceTable, Sharing, Tables, TierName
from scheduler.inspection.pins import CacheReset, PinList, Pinned, Unpinned
from scheduler.inspection.pools import PoolList, PoolMap
from scheduler.inspection.requests import RequestList
from scheduler.inspection.steps import Replay, StepList


class PoolInspector(Protocol):
    """The kvmanager as administrators see it.

    Raises ``NotFound``, ``RequestRefused``, ``Conflict``, and ``NotReady`` if it does not answer.
    """

    async def pools(self) -> PoolList: ...

    async def map(self, pool_id: str, tier: TierName, num_cells: int) -> PoolMap: ...

    async def blocks(self, pool_id: str, query: BlockQuery) -> BlockPage: ...

    async def sequence(self, pool_id: str, sequence_id: int) -> SequenceTable: ...

    async def tables(self, pool_id: str) -> Tables: ...

    async def sharing(self, pool_id: str, start: int, limit: int) -> Sharing: ...

    async def prefixes(self, pool_id: str, prefix_hash: bytes, start: int, limit: int) -> PrefixPage: ...

    async def steps(self, pool_id: str, count: int) -> StepList: ...

    async def replay(self, pool_id: str, step_id: int, num_cells: int) -> Replay: ...

    async def audit(self, pool_id: str) -> Audit: ...

    async def pins(self, pool_id: str) -> PinList: ...

    async def pin(self, pool_id: str, prefix_hash: bytes, ttl_s: float) -> Pinned: ...

    async def unpin(self, pool_id: str, prefix_hash: bytes) -> Unpinned: ...

    async def reset_prefix_cache(self, pool_id: str) -> CacheReset: ...

    async def close(self) -> None: ...


class WorkerInspector(Protocol):
    """A gpuworker as administrators see it. Raises ``NotReady`` if it does not answer."""

    async def tables(self) -> Tables: ...

    async def close(self) -> None: ...


class Administrator(Protocol):
    """What the engine tells of itself, and what needs it to hold still."""

    @property
    def pools(self) -> PoolInspector: ...

    async def resolve(self, pool_id: str | None) -> str:
        """The pool that is meant: ``None`` means the only one, or else the one that this scheduler uses."""

    async def audit(self, pool_id: str) -> Audit:
        """The kvmanager's audit and a comparison with the worker, between two steps."""

    def live_requests(self) -> RequestList: ...

    def prefix_hash(self, token_ids: Sequence[int], cache_salt: str) -> bytes:
        """The hash of the last full block of a prompt. Raises ``RequestRefused`` if there is none."""
