"""The device's blocks: a pool whose free blocks may still be cached."""

from kvmanager.core.block_pool import BlockPool
from kvmanager.core.plan import BlockId, PrefixHash
from kvmanager.core.prefix_cache import PrefixCache


class DeviceTier:
    """Blocks that attention reads, and which of them hold a known prefix.

    Free blocks are taken uncached ones first, then cached ones, least recently used chain first. Tables are released
    from their last block to their first, so a chain is evicted from its tail.
    """

    __slots__ = ("_num_cached_free", "cache", "pool")

    def __init__(self, pool: BlockPool, cache: PrefixCache) -> None:
        self.pool = pool
        self.cache = cache
        self._num_cached_free = sum(pool.counts[block_id] == 0 for _, block_id in cache)

    @property
    def num_free(self) -> int:
        """Blocks that nobody refers to, cached ones included."""
        return self.pool.num_free

    @property
    def num_used(self) -> int:
        """Blocks that a sequence refers to."""
        return self.pool.num_blocks - self.pool.num_free

    @property
    def num_cached_free(self) -> int:
        """Free blocks that a prefix hit can take back."""
        return self._num_cached_free

    def take(self) -> BlockId:
        """A block for new content; what it cached is forgotten."""
        block_id = self.pool.take()
        if self.cache.hash_of(block_id) is not None:
            self.cache.forget(block_id)
            self._num_cached_free -= 1
        return block_id

    def share(self, block_id: BlockId) -> None:
        """Adds a reference to a used or cached block."""
        if self.pool.counts[block_id] == 0:
            self._num_cached_free -= 1
        self.pool.share(block_id)

    def release(self, block_id: BlockId, step_id: int) -> None:
        """Takes a reference away. Without references a cached block stays findable until it is evicted."""
        keep = self.cache.hash_of(block_id) is not None
        if self.pool.release(block_id, step_id, keep=keep) and keep:
            self._num_cached_free += 1

    def publish(self, block_id: BlockId, prefix_hash: PrefixHash) -> BlockId:
        """Makes a used block findable and returns the block that the hash names now.

        That is another block if the same prefix was published before: one copy of a content is enough.
        """
        known = self.cache.block_of(prefix_hash)
        if known is not None:
            return known
        if self.cache.hash_of(block_id) is None:
            self.cache.publish(block_id, prefix_hash)
        return block_id
