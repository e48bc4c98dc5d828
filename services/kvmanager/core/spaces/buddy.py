"""A buddy allocator: chunks of 2^k blocks, split on demand and merged when both halves are free (paper §6.1)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chunk:
    """A contiguous stretch of blocks; ``start`` is a multiple of its size."""

    start: int
    order: int  # log₂ of its size

    @property
    def num_blocks(self) -> int:
        """Its size."""
        return 1 << self.order


class BuddyAllocator:
    """Hands out the smallest free chunk that fits.

    A pool that is no power of two is the sum of some: 981 blocks begin as chunks of 512, 256, 128, 64, 16, 4 and 1,
    which never merge with each other.
    """

    __slots__ = ("_free", "num_blocks", "num_free_blocks")

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}, but must be at least 1")
        self.num_blocks = num_blocks
        self.num_free_blocks = num_blocks
        self._free: list[set[int]] = [set() for _ in range(num_blocks.bit_length())]  # starts, by order
        start = 0
        for order in reversed(range(num_blocks.bit_length())):
            if num_blocks >> order & 1:
                self._free[order].add(start)
                start += 1 << order

    def allocate(self, num_blocks: int) -> Chunk | None:
        """A chunk of at least ``num_blocks`` blocks, rounded up to a power of two; ``None`` if none is free."""
        order = order_for(num_blocks)
        found = next((k for k in range(order, len(self._free)) if self._free[k]), None)
        if found is None:
            return None
        start = min(self._free[found])
        self._free[found].remove(start)
        for half in reversed(range(order, found)):
            self._free[half].add(start + (1 << half))
        self.num_free_blocks -= 1 << order
        return Chunk(start, order)

    def free(self, chunk: Chunk) -> None:
        """Gives a chunk back, merged with its buddy as often as that is free."""
        start, order = chunk.start, chunk.order
        self.num_free_blocks += chunk.num_blocks
        while (buddy := start ^ (1 << order)) in self._free[order]:
            self._free[order].remove(buddy)
            start = min(start, buddy)
            order += 1
        self._free[order].add(start)

    def free_chunks(self) -> list[Chunk]:
        """What is free, by place."""
        chunks = [Chunk(start, order) for order, starts in enumerate(self._free) for start in starts]
        return sorted(chunks, key=lambda chunk: chunk.start)


def order_for(num_blocks: int) -> int:
    """Order of the smallest chunk that holds ``num_blocks`` blocks.

    Raises:
        ValueError: ``num_blocks`` is below 1.

    """
    if num_blocks < 1:
        raise ValueError(f"num_blocks is {num_blocks}, but must be at least 1")
    return (num_blocks - 1).bit_length()
