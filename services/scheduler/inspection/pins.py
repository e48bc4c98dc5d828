"""What commands to the prefix cache answer."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned prefix."""

    hash: str
    num_blocks: int
    expires_at_ms: int | None  # since 1970; null: never


@dataclass(frozen=True, slots=True)
class PinList:
    """All pins of a pool."""

    pins: Sequence[Pin]
    num_pinned_blocks: int
    pin_budget_blocks: int


@dataclass(frozen=True, slots=True)
class Pinned:
    """A prefix that is pinned now."""

    hash: str
    num_blocks: int
    num_pinned_blocks: int  # of all pins together
    pin_budget_blocks: int


@dataclass(frozen=True, slots=True)
class Unpinned:
    """A prefix that is pinned no more."""

    hash: str
    num_pinned_blocks: int  # that are left


@dataclass(frozen=True, slots=True)
class CacheReset:
    """What a reset of the prefix cache forgot."""

    num_forgotten_blocks: int
    num_ended_pins: int
