"""The device's blocks: a pool whose free blocks may still be cached."""

from collections.abc import Iterable

from kvmanager.core.block_pool import BlockPool
from kvmanager.core.pins import Pin, Pins
from kvmanager.core.plan import BlockId, PrefixHash
from kvmanager.core.prefix_cache import PrefixCache


class DeviceTier:
    """Blocks that attention reads, and which of them hold a known prefix.

    Free blocks are taken uncached ones first, then cached ones, least recently used chain first. Tables are released
    from their last block to their first, so a chain is evicted from its tail. A pinned block has one reference more
    than sequences have to it, so that it is never free.
    """

    __slots__ = ("_num_cached_free", "_num_idle_pinned", "cache", "evicted", "num_taken", "pins", "pool")

    def __init__(self, pool: BlockPool, cache: PrefixCache, pins: Iterable[Pin] = ()) -> None:
        """``pins`` are those that the counts of ``pool`` comprise already."""
        self.pool = pool
        self.cache = cache
        self.pins = Pins()
        for pin in pins:
            self.pins.add(pin)
        self._num_idle_pinned = sum(pool.counts[block_id] == 1 for block_id in self.pins.block_ids)
        self.num_taken = 0  # since the process began
        self.evicted: list[BlockId] = []  # whoever asks for it begins a new list
        self._num_cached_free = sum(pool.counts[block_id] == 0 for _, block_id in cache)

    @property
    def num_free(self) -> int:
        """Blocks that nobody refers to, cached ones included."""
        return self.pool.num_free

    @property
    def num_used(self) -> int:
        """Blocks that a sequence refers to."""
        return self.pool.num_blocks - self.pool.num_free - self._num_idle_pinned

    @property
    def num_pinned(self) -> int:
        """Blocks that a pin holds, whether a sequence refers to them or not."""
        return len(self.pins)

    @property
    def num_cached_free(self) -> int:
        """Free blocks that a prefix hit can take back."""
        return self._num_cached_free

    def take(self) -> BlockId:
        """A block for new content; what it cached is forgotten."""
        block_id = self.pool.take()
        self.num_taken += 1
        if self.cache.hash_of(block_id) is not None:
            self.cache.forget(block_id)
            self._num_cached_free -= 1
            self.evicted.append(block_id)
        return block_id

    def share(self, block_id: BlockId) -> None:
        """Adds a reference to a used or cached block."""
        count = self.pool.counts[block_id]
        if count == 0:
            self._num_cached_free -= 1
        elif count == 1 and block_id in self.pins:
            self._num_idle_pinned -= 1
        self.pool.share(block_id)

    def release(self, block_id: BlockId, step_id: int) -> None:
        """Takes a reference away. Without references a cached block stays findable until it is evicted."""
        keep = self.cache.hash_of(block_id) is not None
        if self.pool.release(block_id, step_id, keep=keep):
            self._num_cached_free += keep
        elif block_id in self.pins and self.pool.counts[block_id] == 1:
            self._num_idle_pinned += 1

    def publish(self, block_id: BlockId, prefix_hash: PrefixHash, parent: PrefixHash | None) -> BlockId:
        """Makes a used block findable and returns the block that the hash names now.

        That is another block if the same prefix was published before: one copy of a content is enough.
        """
        known = self.cache.block_of(prefix_hash)
        if known is not None:
            return known
        if self.cache.hash_of(block_id) is None:
            self.cache.publish(block_id, prefix_hash, parent)
        return block_id

    # --- Pins ---

    def pin(self, pin: Pin) -> None:
        """Keeps the blocks of a chain that has no pin yet."""
        for block_id in self.pins.add(pin):
            if self.pool.counts[block_id] == 0:
                self._num_cached_free -= 1
                self._num_idle_pinned += 1
            self.pool.share(block_id)

    def unpin(self, prefix_hash: PrefixHash, step_id: int) -> None:
        """Ends a pin. Blocks that nobody else holds can be evicted again, tail before head."""
        for block_id in self.pins.remove(prefix_hash):
            if self.pool.release(block_id, step_id, keep=True):
                self._num_idle_pinned -= 1
                self._num_cached_free += 1

    def forget_all(self, step_id: int) -> None:
        """Ends every pin and forgets every hash. No block may be used by a sequence."""
        for pin in self.pins.all():
            self.unpin(pin.prefix_hash, step_id)
        self.cache = PrefixCache(self.pool.num_blocks)
        self._num_cached_free = 0
