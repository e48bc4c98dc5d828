"""Which block holds which prefix: hash ↔ block, both ways."""

from collections.abc import Iterable, Iterator

from kvmanager.core.plan import BlockId, PrefixHash


class PrefixCache:
    """Hashes of full, computed blocks. One hash names one block and one block has at most one hash.

    The hash of a block is chained over all blocks before it, so a block is a hit only behind its whole prefix.
    """

    __slots__ = ("_block_of", "_hash_of", "_is_hashed", "_parent_of")

    def __init__(self, num_blocks: int) -> None:
        self._hash_of: list[PrefixHash | None] = [None] * num_blocks
        self._parent_of: list[PrefixHash | None] = [None] * num_blocks  # to look at; nothing is decided by it
        self._is_hashed = bytearray(num_blocks)  # 1 where there is a hash: cheap to copy for a look at the whole
        self._block_of: dict[PrefixHash, BlockId] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def __iter__(self) -> Iterator[tuple[PrefixHash, BlockId]]:
        return iter(self._block_of.items())

    def block_of(self, prefix_hash: PrefixHash) -> BlockId | None:
        """The block that holds this prefix's last tokens."""
        return self._block_of.get(prefix_hash)

    def hash_of(self, block_id: BlockId) -> PrefixHash | None:
        """The prefix that this block holds the end of."""
        return self._hash_of[block_id]

    def parent_of(self, block_id: BlockId) -> PrefixHash | None:
        """The prefix that this block's prefix goes on from; ``None`` for the first of a chain."""
        return self._parent_of[block_id]

    def chain(self, prefix_hash: PrefixHash) -> list[BlockId]:
        """Blocks of the chain that ends with this hash, head first, as far back as it is cached."""
        blocks: list[BlockId] = []
        block_id = self._block_of.get(prefix_hash)
        while block_id is not None and len(blocks) < len(self._block_of):
            blocks.append(block_id)
            parent = self._parent_of[block_id]
            block_id = None if parent is None else self._block_of.get(parent)
        return blocks[::-1]

    def hits(self, prefix_hashes: Iterable[PrefixHash]) -> list[BlockId]:
        """Blocks of the longest known prefix, head first."""
        blocks = []
        for prefix_hash in prefix_hashes:
            block_id = self._block_of.get(prefix_hash)
            if block_id is None:
                break
            blocks.append(block_id)
        return blocks

    def publish(self, block_id: BlockId, prefix_hash: PrefixHash, parent: PrefixHash | None) -> None:
        """Makes a block findable. Neither the block nor the hash may be taken."""
        self._hash_of[block_id] = prefix_hash
        self._parent_of[block_id] = parent
        self._is_hashed[block_id] = 1
        self._block_of[prefix_hash] = block_id

    def forget(self, block_id: BlockId) -> None:
        """Removes a block's hash, if it has one."""
        prefix_hash = self._hash_of[block_id]
        if prefix_hash is not None:
            self._hash_of[block_id] = self._parent_of[block_id] = None
            self._is_hashed[block_id] = 0
            del self._block_of[prefix_hash]

    def flags(self) -> bytearray:
        """1 for every block with a hash, 0 for the others; a copy."""
        return self._is_hashed[:]

    def hashes(self) -> list[PrefixHash | None]:
        """A copy of the hash of every block, by block id."""
        return self._hash_of[:]

    def parents(self) -> list[PrefixHash | None]:
        """A copy of the parent of every block, by block id."""
        return self._parent_of[:]

    @classmethod
    def restore(cls, hashes: list[PrefixHash | None], parents: list[PrefixHash | None]) -> "PrefixCache":
        """The cache whose ``hashes()`` and ``parents()`` these were."""
        cache = cls(0)
        cache._hash_of = hashes[:]
        cache._parent_of = parents[:]
        cache._is_hashed = bytearray(prefix_hash is not None for prefix_hash in hashes)
        cache._block_of = {
            prefix_hash: BlockId(block_id) for block_id, prefix_hash in enumerate(hashes) if prefix_hash is not None
        }
        return cache
