"""Prefixes that an administrator keeps in the cache."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvmanager.core.plan import BlockId, PrefixHash


@dataclass(frozen=True, slots=True)
class Pin:
    """A chain of cached blocks, head first, that is kept until it is unpinned.

    ``expires_at_ms`` (since 1970, 0: never) is carried for the shell: the core has no clock.
    """

    prefix_hash: PrefixHash  # of the last block
    blocks: tuple[BlockId, ...]
    expires_at_ms: int = 0


class Pins:
    """All pins of a pool. A block of several pins is held by one reference, until the last of them ends."""

    __slots__ = ("_by_hash", "_num_pins")

    def __init__(self) -> None:
        self._by_hash: dict[PrefixHash, Pin] = {}
        self._num_pins: dict[BlockId, int] = {}

    def __contains__(self, block_id: BlockId) -> bool:
        """Whether a pin holds this block."""
        return block_id in self._num_pins

    def __len__(self) -> int:
        """Blocks that pins hold."""
        return len(self._num_pins)

    @property
    def num_pins(self) -> int:
        """Pinned prefixes."""
        return len(self._by_hash)

    @property
    def block_ids(self) -> Iterable[BlockId]:
        """Blocks that pins hold, each once."""
        return self._num_pins.keys()

    def get(self, prefix_hash: PrefixHash) -> Pin | None:
        """The pin of this prefix."""
        return self._by_hash.get(prefix_hash)

    def all(self) -> list[Pin]:
        """The pins in the order in which they came."""
        return list(self._by_hash.values())

    def add(self, pin: Pin) -> list[BlockId]:
        """Adds a pin whose prefix has none, and returns the blocks that no other one holds."""
        self._by_hash[pin.prefix_hash] = pin
        fresh = [block_id for block_id in pin.blocks if block_id not in self._num_pins]
        for block_id in pin.blocks:
            self._num_pins[block_id] = self._num_pins.get(block_id, 0) + 1
        return fresh

    def remove(self, prefix_hash: PrefixHash) -> list[BlockId]:
        """Ends a pin and returns the blocks that no other one holds, the last of the chain first."""
        left = []
        for block_id in reversed(self._by_hash.pop(prefix_hash).blocks):
            self._num_pins[block_id] -= 1
            if not self._num_pins[block_id]:
                del self._num_pins[block_id]
                left.append(block_id)
        return left
