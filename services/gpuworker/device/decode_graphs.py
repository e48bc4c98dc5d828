"""Decode steps as graphs: recorded once for a number of sequences, replayed on what the input's buffer holds then.

A graph has a fixed number of rows, so a step is padded up to the next one. A padding row is a sequence of one token in
a block of the pool that no sequence owns; it writes there, reads there, and its logits are left out.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gpuworker.core.batch import Batch
from gpuworker.core.steps import BlockId
from gpuworker.device.staging import Extents, StagedStep, Staging
from gpuworker.kernels.cuda_device import Device
from gpuworker.model.llama import ModelInput

# Powers of two and their sums with the half: at most a third of the rows is padding.
NUM_SEQS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MOST_CONTEXT_TOKENS = 8192  # wider tables would cost every step; what is longer has work enough to hide its launches

_NOTHING = Batch((), (), (), (0,), (), (), (), (), ())


@dataclass(frozen=True, slots=True)
class GraphShape:
    """What the graphs of a worker have in common."""

    block_size: int  # tokens
    max_blocks: int  # row length of the block tables
    padding_block: BlockId
    sizes: Sequence[int] = NUM_SEQS  # rows of each graph, rising

    @classmethod
    def of(cls, max_model_len: int, block_size: int, padding_block: BlockId) -> "GraphShape":
        """Graphs for contexts up to ``max_model_len`` or ``MOST_CONTEXT_TOKENS``."""
        return cls(block_size, -(-min(max_model_len, MOST_CONTEXT_TOKENS) // block_size), padding_block)

    def num_seqs_for(self, batch: Batch) -> int | None:
        """Rows of the graph for ``batch``; None if it is not a decode of one token a sequence or is too large."""
        num_seqs = len(batch.context_lens)
        one_each = len(batch.token_ids) == len(batch.sample_rows) == len(batch.samples) == num_seqs
        if not one_each or batch.scored_token_ids or num_seqs > self.sizes[-1]:
            return None
        if max(batch.context_lens, default=0) > self.max_blocks * self.block_size:
            return None
        return next(size for size in self.sizes if size >= num_seqs)

    def pad(self, batch: Batch, num_seqs: int) -> Batch:
        """``batch``, a decode, with padding rows up to ``num_seqs``."""
        num_real = len(batch.context_lens)
        added = range(num_real, num_seqs)
        first_slot = self.padding_block * self.block_size
        return replace(
            batch,
            token_ids=[*batch.token_ids, *(0 for _ in added)],
            positions=[*batch.positions, *(0 for _ in added)],
            slot_mapping=[*batch.slot_mapping, *(first_slot + row % self.block_size for row in added)],
            query_starts=range(num_seqs + 1),
            context_lens=[*batch.context_lens, *(1 for _ in added)],
            block_tables=[*batch.block_tables, *(array("i", [self.padding_block]) for _ in added)],
            sample_rows=range(num_seqs),
        )

    def extents(self, num_seqs: int, num_samples: int = 0) -> Extents:
        """Of a padded step."""
        return Extents(num_seqs, num_seqs, num_seqs, self.max_blocks, num_samples)


class DecodeGraphs:
    """The graphs of one model, all over one input buffer and one of logits."""

    def __init__(
        self,
        forward: Callable[[ModelInput], Tensor],
        device: Device,
        shape: GraphShape,
    ) -> None:
        """Records all sizes, the largest first: its temporary memory serves the others too."""
        self._forward = forward
        self._device = device
        self._shape = shape
        largest = shape.sizes[-1]
        self._staging = Staging(device, shape.extents(largest, largest).num_bytes)
        self._logits = self._empty_logits(largest)  # [most sequences, vocab_size]
        self._replays = {size: self._record(size) for size in reversed(shape.sizes)}

    def run(self, batch: Batch) -> tuple[StagedStep, Tensor] | None:
        """The step on the device and its logits [num_seqs, vocab_size], which the next run overwrites.

        None if no graph fits.
        """
        num_seqs = self._shape.num_seqs_for(batch)
        if num_seqs is None:
            return None
        staged = self._send(batch, num_seqs)
        self._replays[num_seqs]()
        return staged, self._logits[: len(batch.context_lens)]

    def _send(self, batch: Batch, num_seqs: int) -> StagedStep:
        return self._staging.send(self._shape.pad(batch, num_seqs), self._shape.extents(num_seqs, len(batch.samples)))

    @torch.inference_mode()
    def _empty_logits(self, num_seqs: int) -> Tensor:
        return torch.empty_like(self._forward(self._send(_NOTHING, num_seqs).model_input))

    def _record(self, num_seqs: int) -> Callable[[], None]:
        self._device.synchronize()  # the step before must have been read
        model_input = self._send(_NOTHING, num_seqs).model_input

        @torch.inference_mode()
        def work() -> None:
            self._logits[:num_seqs].copy_(self._forward(model_input))

        return self._device.record(work)
