"""Names of KV blocks: equal hashes mean equal KV.

A block's KV depends on every token before its end and on what computed it. The hash is SHA-256 chained over typed,
length-prefixed fields, so that no two different inputs look alike when joined:

    root  = H(model fingerprint, adapter, tenant salt, deployment seed)
    hash₀ = H(root, tokens of block 0)
    hashᵢ = H(hashᵢ₋₁, tokens of block i)
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class PrefixDomain:
    """Within which equal tokens have equal KV. Requests of different domains never share a cached block."""

    model_fingerprint: bytes
    adapter: str = ""
    tenant_salt: bytes = b""
    deployment_seed: bytes = b""

    def root(self) -> bytes:
        """Parent of the first block of every chain in this domain."""
        return sha256(
            _field(b"m", self.model_fingerprint)
            + _field(b"a", self.adapter.encode())
            + _field(b"s", self.tenant_salt)
            + _field(b"d", self.deployment_seed)
        ).digest()

    def salted(self, cache_salt: str) -> "PrefixDomain":
        """The part of the domain that a request's own salt sets apart: mixed into the tenant's, never in its place."""
        if not cache_salt:
            return self
        salt = sha256(_field(b"s", self.tenant_salt) + _field(b"r", cache_salt.encode(errors="surrogatepass"))).digest()
        return replace(self, tenant_salt=salt)


class PrefixHasher:
    """Extends chains of block hashes; each block is hashed once."""

    def __init__(self, domain: PrefixDomain, block_size: int) -> None:
        self._domain = domain
        self._root = domain.root()
        self.block_size = block_size
        self._tokens = struct.Struct(f"<{block_size}I")
        self._tokens_header = _header(b"t", self._tokens.size)

    def extend(self, hashes: bytearray, token_ids: Sequence[int], cache_salt: str = "") -> None:
        """Appends to ``hashes`` those of the full blocks of ``token_ids`` that it does not have yet."""
        block_size = self.block_size
        parent = bytes(hashes[-HASH_BYTES:]) or (self._domain.salted(cache_salt).root() if cache_salt else self._root)
        for block_index in range(len(hashes) // HASH_BYTES, len(token_ids) // block_size):
            start = block_index * block_size
            tokens = self._tokens.pack(*token_ids[start : start + block_size])
            parent = sha256(_PARENT_HEADER + parent + self._tokens_header + tokens).digest()
            hashes += parent


def _header(kind: bytes, num_bytes: int) -> bytes:
    return kind + struct.pack("<Q", num_bytes)


def _field(kind: bytes, value: bytes) -> bytes:
    return _header(kind, len(value)) + value


_PARENT_HEADER = _header(b"p", HASH_BYTES)
