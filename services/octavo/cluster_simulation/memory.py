"""A worker's memory: the kvmanager's own ``BlockSpace``, and what a router hears of its prefix cache."""

from collections.abc import Sequence
from typing import Protocol

from kvmanager.core.block_space import BlockSpace
from kvmanager.core.plan import BlockId, Grant, Plan, PoolShape, PrefixHash, SealedBlocks, SequenceId


class CacheListener(Protocol):
    """Hears which prefixes a worker caches."""

    def published(self, prefix_hash: PrefixHash) -> None:
        """A block is cached that was not before."""

    def evicted(self, prefix_hash: PrefixHash) -> None:
        """A block is cached no longer."""


class WorkerMemory:
    """Applies plans to one pool and tells ``listener``, if there is one, what that did to the prefix cache."""

    def __init__(self, shape: PoolShape, listener: CacheListener | None) -> None:
        self.space = BlockSpace.empty(shape)
        self._listener = listener
        self._hash_of: dict[BlockId, PrefixHash] = {}  # of cached blocks; the space has forgotten evicted ones' by then

    def apply(self, plan: Plan) -> Grant:
        """Carries a plan out."""
        if self._listener is None:
            return self.space.apply(plan)
        self._publish(plan.sealed, self._listener)
        grant = self.space.apply(plan)
        for block_id in self.space.last_trace.evicted_block_ids:
            self._listener.evicted(self._hash_of.pop(block_id))
        return grant

    @property
    def num_used_blocks(self) -> int:
        """Blocks that sequences hold."""
        return self.space.usage.num_used_device_blocks

    def num_missing_blocks(self, sequence_ids: Sequence[SequenceId], num_slots: int) -> int:
        """Blocks that these sequences need to get ``num_slots`` slots more each."""
        tables = self.space.device
        return tables.num_blocks_missing((tables[i], tables[i].num_slots + num_slots) for i in sequence_ids)

    def _publish(self, sealed: SealedBlocks, listener: CacheListener) -> None:
        """Before the plan is applied: where a hash is known already, its block stays the one that is found."""
        known, tables = self.space.device.tier.cache, self.space.device
        new: set[PrefixHash] = set()
        for sequence_id, index, prefix_hash in zip(
            sealed.sequence_ids, sealed.block_indexes, sealed.hashes, strict=True
        ):
            if known.block_of(prefix_hash) is None and prefix_hash not in new:
                new.add(prefix_hash)
                self._hash_of[BlockId(tables[sequence_id].blocks[index])] = prefix_hash
                listener.published(prefix_hash)
