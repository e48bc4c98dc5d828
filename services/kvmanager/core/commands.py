"""What an administrator may do to a pool. Journalled like plans, so that a replay gives the same state."""

from dataclasses import dataclass

from kvmanager.core.plan import PrefixHash


@dataclass(frozen=True, slots=True)
class PinPrefix:
    """Keep the cached chain that ends with this hash. An existing pin of the same hash gets the new expiry."""

    prefix_hash: PrefixHash
    expires_at_ms: int = 0  # since 1970, for the shell's clock; 0: never


@dataclass(frozen=True, slots=True)
class UnpinPrefix:
    """Let the chain be evicted again, as recently used as can be."""

    prefix_hash: PrefixHash


@dataclass(frozen=True, slots=True)
class ResetPrefixCache:
    """Forget every hash and end every pin. Only where no sequence holds a block."""


Command = PinPrefix | UnpinPrefix | ResetPrefixCache
