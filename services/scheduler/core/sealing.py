"""Blocks that became full, gathered for the next plan."""

from scheduler.core.prefix_hash import HASH_BYTES, PrefixHasher
from scheduler.core.request import SequenceId
from scheduler.core.sequence import Sequence


class SealedBlocks:
    """Full blocks whose KV was computed since the last plan. Columns; entry i of each is one block."""

    def __init__(self, hasher: PrefixHasher) -> None:
        self._hasher = hasher
        self.sequence_ids: list[SequenceId] = []
        self.block_indexes: list[int] = []
        self.hashes = bytearray()

    def seal(self, sequence: Sequence, num_full_blocks: int) -> None:
        """Adds the blocks of ``sequence`` up to ``num_full_blocks`` that were not sealed before."""
        first = sequence.num_sealed_blocks
        self._hasher.extend(sequence.block_hashes, sequence.token_ids, sequence.cache_salt)
        self.sequence_ids += [sequence.sequence_id] * (num_full_blocks - first)
        self.block_indexes += range(first, num_full_blocks)
        self.hashes += sequence.block_hashes[first * HASH_BYTES : num_full_blocks * HASH_BYTES]
        sequence.num_sealed_blocks = num_full_blocks
