"""Blocks of one tier: reference counts and a free queue in eviction order."""

from array import array
from dataclasses import dataclass

from kvmanager.core.plan import BlockId

_STEP_IDS = 2**32
"""Step ids that are told apart in four bytes per block."""


@dataclass(frozen=True, slots=True)
class BlockPoolSnapshot:
    """Everything a ``BlockPool`` knows, as flat arrays. The ring's two have one entry more than there are blocks."""

    following: "array[int]"
    preceding: "array[int]"
    counts: "array[int]"
    last_used: "array[int]"
    num_free: int


class BlockPool:
    """Reference counts and the free queue. Every operation on a block is O(1).

    The free queue is a ring through two flat arrays whose entry ``num_blocks`` is the end::

        end ⇄ first to be taken ⇄ … ⇄ last to be taken ⇄ end

    A block is in the ring exactly while its count is 0.
    """

    __slots__ = ("_following", "_last_used", "_preceding", "counts", "num_blocks", "num_free")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._following = array("i", [*range(1, num_blocks + 1), 0])
        self._preceding = array("i", [num_blocks, *range(num_blocks)])
        self.counts = array("I", bytes(4 * num_blocks))
        self._last_used = array("I", bytes(4 * num_blocks))  # step id at which the count fell to 0, modulo 2**32
        self.num_free = num_blocks

    def take(self) -> BlockId:
        """Takes the first block of the free queue with count 1. The caller has made sure that there is one."""
        following = self._following
        end = self.num_blocks
        block_id = following[end]
        if block_id == end:
            raise IndexError("no block is free")
        after = following[block_id]
        following[end] = after
        self._preceding[after] = end
        self.counts[block_id] = 1
        self.num_free -= 1
        return BlockId(block_id)

    def share(self, block_id: BlockId) -> None:
        """Adds a reference; a free block leaves the free queue with its content."""
        if self.counts[block_id] == 0:
            before, after = self._preceding[block_id], self._following[block_id]
            self._following[before] = after
            self._preceding[after] = before
            self.num_free -= 1
        self.counts[block_id] += 1

    def release(self, block_id: BlockId, step_id: int, *, keep: bool) -> bool:
        """Takes a reference away and says whether it was the last.

        A block that nobody refers to joins the free queue: at its end if its content is worth keeping, else at
        its front.
        """
        count = self.counts[block_id] - 1
        self.counts[block_id] = count
        if count:
            return False
        self._last_used[block_id] = step_id % _STEP_IDS
        self._link(block_id, at_end=keep)
        self.num_free += 1
        return True

    def discard(self, block_id: BlockId) -> None:
        """Moves a free block, whose content is no longer worth keeping, to the front of the queue."""
        before, after = self._preceding[block_id], self._following[block_id]
        self._following[before] = after
        self._preceding[after] = before
        self._link(block_id, at_end=False)

    def last_used(self, block_id: BlockId, last_step_id: int) -> int:
        """The step in which the block's last reference was taken away, 0 if it never had one.

        ``last_step_id`` is the step now. What is longer ago than 2**32 steps looks younger.
        """
        return max(0, last_step_id - (last_step_id - self._last_used[block_id]) % _STEP_IDS)

    def free_blocks(self) -> list[BlockId]:
        """The free queue, first to be taken first. O(number of free blocks)."""
        order = []
        block_id = self._following[self.num_blocks]
        while block_id != self.num_blocks:
            order.append(BlockId(block_id))
            block_id = self._following[block_id]
        return order

    def snapshot(self) -> BlockPoolSnapshot:
        """A copy of everything."""
        return BlockPoolSnapshot(
            self._following[:], self._preceding[:], self.counts[:], self._last_used[:], self.num_free
        )

    @classmethod
    def restore(cls, snapshot: BlockPoolSnapshot) -> "BlockPool":
        """The pool that the snapshot was taken of."""
        pool = cls(0)
        pool.num_blocks = len(snapshot.counts)
        pool._following = snapshot.following[:]
        pool._preceding = snapshot.preceding[:]
        pool.counts = snapshot.counts[:]
        pool._last_used = snapshot.last_used[:]
        pool.num_free = snapshot.num_free
        return pool

    def _link(self, block_id: BlockId, *, at_end: bool) -> None:
        end = self.num_blocks
        before = self._preceding[end] if at_end else end
        after = self._following[before]
        self._following[before] = block_id
        self._preceding[block_id] = before
        self._following[block_id] = after
        self._preceding[after] = block_id
