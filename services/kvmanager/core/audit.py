"""Finds contradictions between tables, counts, the free queue and the prefix cache (STYLE, rule 12)."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kvmanager.core.block_pool import BlockPool
from kvmanager.core.block_table import BlockTable, DeviceTables
from kvmanager.core.host_tier import HostTier
from kvmanager.core.plan import BlockId


def audit(device: DeviceTables, host: HostTier) -> list[str]:
    """All contradictions in words; empty if there are none. Changes nothing."""
    return [
        *_pool_faults("device", device.tier.pool, list(device.by_id.values()), device.tier.pins.block_ids),
        *_pool_faults("host", host.pool, list(host.tables.values()), ()),
        *(fault for table in device.by_id.values() for fault in _table_faults("device", table, device.block_size)),
        *(fault for table in host.tables.values() for fault in _table_faults("host", table, device.block_size)),
        *_cache_faults(device),
        *_promise_faults(device, host),
        *_pin_faults(device),
    ]


def _pool_faults(tier: str, pool: BlockPool, tables: list[BlockTable], pinned: Iterable[int]) -> Iterator[str]:
    references = Counter(block_id for table in tables for block_id in table.blocks)
    references.update(pinned)
    for block_id, count in enumerate(pool.counts):
        if count != references[block_id]:
            yield f"{tier} block {block_id}: count {count}, but {references[block_id]} references"
    free = pool.free_blocks()
    if len(free) != pool.num_free or len(set(free)) != len(free):
        yield f"{tier}: {len(free)} blocks in the free queue, {len(set(free))} different, {pool.num_free} counted"
    queued = set(free)
    for block_id, count in enumerate(pool.counts):
        if (count == 0) != (block_id in queued):
            yield f"{tier} block {block_id}: count {count}, but {'' if block_id in queued else 'not '}in the free queue"


def _table_faults(tier: str, table: BlockTable, block_size: int) -> Iterator[str]:
    expected = -(-table.num_slots // block_size)
    if len(table.blocks) != expected:
        yield f"{tier} sequence {table.sequence_id}: {len(table.blocks)} blocks for {table.num_slots} slots"
    if len(set(table.blocks)) != len(table.blocks):
        yield f"{tier} sequence {table.sequence_id}: a block twice in {list(table.blocks)}"
    if table.num_writable_slots > len(table.blocks) * block_size:
        yield f"{tier} sequence {table.sequence_id}: may write {table.num_writable_slots} slots without asking"


def _cache_faults(device: DeviceTables) -> Iterator[str]:
    tier = device.tier
    for prefix_hash, block_id in tier.cache:
        if tier.cache.hash_of(block_id) != prefix_hash:
            yield f"device block {block_id}: found by a hash that it does not have"
    if tier.cache.flags() != bytearray(tier.cache.hash_of(BlockId(n)) is not None for n in range(tier.pool.num_blocks)):
        yield "device: the flags of hashed blocks are not those of the blocks that have a hash"
    hashed = [block_id for block_id in map(BlockId, range(tier.pool.num_blocks)) if tier.cache.hash_of(block_id)]
    if len(hashed) != len(tier.cache):
        yield f"device: {len(hashed)} blocks have a hash, {len(tier.cache)} can be found"
    num_cached_free = sum(tier.pool.counts[block_id] == 0 for block_id in hashed)
    if num_cached_free != tier.num_cached_free:
        yield f"device: {num_cached_free} free blocks are cached, {tier.num_cached_free} counted"
    kept = [tier.cache.hash_of(block_id) is not None for block_id in tier.pool.free_blocks()]
    if kept != sorted(kept):
        yield "device: a cached block stands before an uncached one in the free queue"


def _promise_faults(device: DeviceTables, host: HostTier) -> Iterator[str]:
    outstanding = sum(max(0, table.num_promised_blocks - len(table.blocks)) for table in device.by_id.values())
    if outstanding != device.num_promised_blocks:
        yield f"device: {outstanding} blocks are promised, {device.num_promised_blocks} counted"
    for block_id in host.hashes:
        if host.pool.counts[block_id] == 0:
            yield f"host block {block_id}: free, but has a hash"
    for table in device.by_id.values():
        goes_on_in_last = table.num_writable_slots > table.num_slots and table.num_slots % device.block_size
        if goes_on_in_last and device.tier.pool.counts[table.blocks[-1]] != 1:
            yield f"device sequence {table.sequence_id}: may write into a shared block"


def _pin_faults(device: DeviceTables) -> Iterator[str]:
    tier = device.tier
    for pin in tier.pins.all():
        if list(pin.blocks) != tier.cache.chain(pin.prefix_hash)[-len(pin.blocks) :]:
            yield f"pin {pin.prefix_hash.hex()}: holds blocks {list(pin.blocks)}, which are not its chain"
    referred = {block_id for table in device.by_id.values() for block_id in table.blocks}
    if len(referred) != tier.num_used:
        yield f"device: sequences refer to {len(referred)} blocks, {tier.num_used} counted"
