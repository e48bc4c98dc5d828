"""Looks into the pools that this process owns, and carries out what an administrator asks of them."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from kvmanager.beside import beside
from kvmanager.core.block_space import BlockSpace
from kvmanager.core.commands import PinPrefix, ResetPrefixCache, UnpinPrefix
from kvmanager.core.comparison import differences
from kvmanager.core.history import StepRecord
from kvmanager.core.inspection import (
    BlockPage,
    BlockQuery,
    PoolMap,
    SequenceView,
    Tier,
    TierView,
    blocks_page,
    chain_rows,
    draw_map,
    find_holders,
    map_source,
    prefixes_page,
    sequence_view,
    sequence_views,
)
from kvmanager.core.plan import PrefixHash, SequenceId
from kvmanager.core.pool_state import PoolState, PoolStateSnapshot
from kvmanager.errors import JournalCorrupt, KVManagerError, UnknownToPool
from kvmanager.pool import Pool
from kvmanager.pools import Pools
from kvmanager.replica import Replica
from kvmanager.views import (
    AuditReport,
    CacheReset,
    Finding,
    PinRefused,
    PinView,
    PoolFacts,
    PrefixView,
    ReplayView,
    SharingView,
    TablesView,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)

_EXPIRE_EVERY_S = 1.0


class Inspector:
    """Questions change nothing and hold a pool up for a bounded time; commands are journalled.

    Methods raise ``UnknownToPool`` and what ``Pool.ask`` and ``Pool.administer`` raise. ``pin_budget`` is a share of
    the device blocks.
    """

    def __init__(self, pools: Pools, instance: str, *, pin_budget: float) -> None:
        self._pools = pools
        self._pin_budget = pin_budget
        self.instance = instance

    # --- Questions ---

    async def pools(self) -> list[PoolFacts]:
        """Every pool that this process owns, in numbers."""
        return [
            await pool.ask(lambda replica, pool_id=pool_id, pool=pool: self._facts(pool_id, pool, replica))  # type: ignore[misc]
            for pool_id, pool in self._pools.owned().items()
            if pool.replica.state.is_open
        ]

    async def map(self, pool_id: str, tier: Tier, num_cells: int) -> PoolMap:
        """What each part of a tier is used for."""
        return await _drawn(await self._ask(pool_id, lambda state: draw_map(map_source(state.space, tier, num_cells))))

    async def blocks(self, pool_id: str, query: BlockQuery) -> BlockPage:
        """A page of blocks."""
        page = await self._ask(pool_id, lambda state: blocks_page(state.space, query))
        await _in_turns(find_holders(page))
        return page

    async def sequence(self, pool_id: str, sequence_id: SequenceId) -> tuple[SequenceView, int]:
        """A sequence's table, and the step as of which it is."""
        view, step_id = await self._ask(
            pool_id, lambda state: (sequence_view(state.space, sequence_id), state.last_step_id)
        )
        if view is None:
            raise UnknownToPool(f"sequence {sequence_id} has no block table in pool {pool_id!r}")
        return view, step_id

    async def tables(self, pool_id: str) -> TablesView:
        """The device tables, for a comparison with the worker's."""
        return await self._ask(
            pool_id,
            lambda state: TablesView(state.epoch, state.last_step_id, TierView(state.space, Tier.DEVICE).copies()),
        )

    async def sharing(self, pool_id: str, query: BlockQuery) -> SharingView:
        """A page of shared blocks, with the totals."""
        view = await self._ask(pool_id, lambda state: _sharing(state.space, query))
        await _in_turns(find_holders(view.page))
        return view

    async def prefixes(self, pool_id: str, prefix_hash: PrefixHash, start: int, page_size: int) -> PrefixView:
        """A page of the prefix tree's nodes, or the chain that ends with ``prefix_hash`` unless it is empty."""

        def question(state: PoolState) -> PrefixView:
            space = state.space
            if prefix_hash:
                rows, following = chain_rows(space, prefix_hash), 0
            else:
                rows, following = prefixes_page(space, start, page_size)
            return PrefixView(rows, len(space.device.tier.cache), following, space.last_step_id)

        return await self._ask(pool_id, question)

    async def steps(self, pool_id: str, count: int) -> list[StepRecord]:
        """The last steps, newest first."""
        return await self._ask(pool_id, lambda state: list(state.history)[: -count - 1 : -1])

    async def replay(self, pool_id: str, step_id: int, num_cells: int) -> ReplayView:
        """The pool after a step (0: the last), from the journal. Raises ``OutOfReach`` and ``JournalCorrupt``."""
        pool = self._pool(pool_id)
        epoch, last, end = await pool.ask(
            lambda replica: (replica.state.epoch, replica.state.last_step_id, replica.position)
        )
        past = await pool.past.after(epoch, step_id or last, end)
        state = past.state
        facts = self._state_facts(pool_id, state, past.position, min(past.position, pool.snapshot_position))
        drawn = await _drawn(draw_map(map_source(state.space, Tier.DEVICE, num_cells)))
        return ReplayView(past.first_step_id, last, past.step, facts, sequence_views(state.space), drawn)

    async def audit(self, pool_id: str) -> AuditReport:
        """Runs every invariant, and compares memory with what Redis would restore. Repairs nothing."""
        pool = self._pool(pool_id)
        snapshot, totals, position = await pool.ask(
            lambda replica: (replica.state.snapshot(), _totals(replica.state.space), replica.position)
        )
        findings = await beside(lambda: _memory_findings(snapshot, totals))
        try:
            restored = await pool.past.at(position)
            found = await beside(lambda: differences(snapshot, restored.snapshot()))
        except JournalCorrupt as error:
            found = [str(error)]
        findings += [Finding("redis", message) for message in found]
        space = snapshot.space
        assert space is not None, "the totals were those of an open pool"
        return AuditReport(
            step_id=space.last_step_id,
            epoch=snapshot.epoch,
            findings=findings,
            num_checked_blocks=space.shape.num_device_blocks + space.shape.num_host_blocks,
            num_checked_sequences=len(space.device_tables) + len(space.host_tables),
        )

    async def pins(self, pool_id: str) -> PinView:
        """All pins."""
        return await self._ask(pool_id, lambda state: self._pins(state.space))

    # --- Commands ---

    async def pin(self, pool_id: str, prefix_hash: PrefixHash, ttl_s: float) -> PinRefused | None:
        """Keeps a cached chain for ``ttl_s`` seconds; 0: until it is unpinned. ``None``: it is pinned now."""
        expires_at_ms = round((time.time() + ttl_s) * 1000) if ttl_s else 0
        command = PinPrefix(prefix_hash, expires_at_ms)
        return await self._pool(pool_id).administer(command, lambda state: self._pin_refusal(state.space, command))

    async def unpin(self, pool_id: str, prefix_hash: PrefixHash) -> bool:
        """Ends a pin; says whether there was one."""
        refused = await self._pool(pool_id).administer(
            UnpinPrefix(prefix_hash),
            lambda state: None if state.space.device.tier.pins.get(prefix_hash) else "there is no such pin",
        )
        return refused is None

    async def reset_prefix_cache(self, pool_id: str) -> CacheReset:
        """Forgets every hash and ends every pin, unless sequences hold blocks."""
        before = CacheReset(0, 0, [])

        def refuse(state: PoolState) -> list[SequenceId] | None:
            nonlocal before
            device, host = state.space.device, state.space.host
            before = CacheReset(len(device.tier.cache), device.tier.pins.num_pins, [])
            return sorted([*device.by_id, *host.tables]) or None

        holders = await self._pool(pool_id).administer(ResetPrefixCache(), refuse)
        return before if holders is None else CacheReset(0, 0, holders)

    async def expire_pins(self) -> None:
        """Ends pins whose time is over, for ever."""
        while True:
            await asyncio.sleep(_EXPIRE_EVERY_S)
            for pool_id, pool in self._pools.owned().items():
                try:
                    await self._expire(pool_id, pool)
                except KVManagerError as error:
                    _log.warning("pins of pool %s not expired: %s", pool_id, error)

    async def _expire(self, pool_id: str, pool: Pool) -> None:
        state, now_ms = pool.replica.state, time.time() * 1000
        for pin in state.space.device.tier.pins.all() if state.is_open else ():
            if pin.expires_at_ms and pin.expires_at_ms <= now_ms:
                await self.unpin(pool_id, pin.prefix_hash)
                _log.info("pool %s: the pin of %s expired", pool_id, pin.prefix_hash.hex())

    # --- Inside ---

    def _pool(self, pool_id: str) -> Pool:
        owned = self._pools.owned()
        pool = owned.get(pool_id)
        if pool is None or not pool.replica.state.is_open:
            raise UnknownToPool(f"pool_id: {pool_id!r} is not owned by {self.instance!r}, which has {sorted(owned)}")
        return pool

    async def _ask(self, pool_id: str, question: Callable[[PoolState], T]) -> T:
        return await self._pool(pool_id).ask(lambda replica: question(replica.state))

    def _facts(self, pool_id: str, pool: Pool, replica: Replica) -> PoolFacts:
        return self._state_facts(pool_id, replica.state, replica.position, pool.snapshot_position)

    def _state_facts(self, pool_id: str, state: PoolState, position: int, snapshot_position: int) -> PoolFacts:
        space = state.space
        return PoolFacts(
            pool_id=pool_id,
            epoch=state.epoch,
            last_step_id=space.last_step_id,
            shape=space.shape,
            usage=space.usage,
            num_pinned_blocks=space.device.tier.num_pinned,
            num_sequences=space.num_sequences,
            num_swapped_sequences=len(space.host.tables),
            pin_budget_blocks=self._budget_of(space),
            journal_position=position,
            snapshot_position=snapshot_position,
            counters=state.counters,
        )

    def _budget_of(self, space: BlockSpace) -> int:
        return int(self._pin_budget * space.shape.num_device_blocks)

    def _pins(self, space: BlockSpace) -> PinView:
        return PinView(space.device.tier.pins.all(), space.device.tier.num_pinned, self._budget_of(space))

    def _pin_refusal(self, space: BlockSpace, command: PinPrefix) -> PinRefused | None:
        chain = space.device.tier.cache.chain(command.prefix_hash)
        if not chain:
            return PinRefused(f"hash: {command.prefix_hash.hex()} is not in the prefix cache", is_unknown=True)
        pins, budget = space.device.tier.pins, self._budget_of(space)
        num_new = sum(block_id not in pins for block_id in chain)
        if len(pins) + num_new > budget:
            reason = f"{num_new} more blocks would be pinned beside {len(pins)}, but the budget is {budget} blocks"
            return PinRefused(reason, is_unknown=False)
        return None


def _sharing(space: BlockSpace, query: BlockQuery) -> SharingView:
    num_logical = sum(len(table.blocks) for table in space.device.by_id.values())
    return SharingView(blocks_page(space, query), num_logical, space.usage.num_used_device_blocks)


def _totals(space: BlockSpace) -> tuple[int, ...]:
    """Numbers that are kept beside what they count: a restored copy counts them anew."""
    tier = space.device.tier
    return (tier.num_free, tier.num_cached_free, tier.num_used, len(tier.cache), space.device.num_promised_blocks)


def _memory_findings(snapshot: PoolStateSnapshot, totals: tuple[int, ...]) -> list[Finding]:
    """Runs on a thread, on a copy of the pool."""
    space = PoolState.restore(snapshot).space
    findings = [Finding("memory", message) for message in space.check()]
    if _totals(space) != totals:
        names = "free, cached and free, used, hashed and promised blocks"
        findings.append(Finding("memory", f"{names} are {_totals(space)}, but {totals} are counted"))
    return findings


async def _in_turns(work: Iterator[None]) -> None:
    for _ in work:
        await asyncio.sleep(0)


async def _drawn(work: Iterator[PoolMap | None]) -> PoolMap:
    for result in work:
        if result is not None:
            return result
        await asyncio.sleep(0)
    raise AssertionError("a map is drawn in the end")
