"""The input of a step in one piece of memory, so that it goes to the device in one copy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpuworker.core.batch import Batch
from gpuworker.kernels import AttentionBatch
from gpuworker.kernels.cuda_device import Device
from gpuworker.model.llama import ModelInput
from gpuworker.row_structs import ROW_BYTES
from gpuworker.sampling_rows import pack

_ALIGNMENT = 16  # bytes, of every column


@dataclass(frozen=True, slots=True)
class Extents:
    """How much of everything a step has. What a graph reads comes first, so that the rest can vary under it."""

    num_tokens: int
    num_rows: int  # of logits
    num_seqs: int
    max_blocks: int  # row length of the block tables
    num_samples: int = 0
    num_scored: int = 0

    @property
    def columns(self) -> tuple[tuple[torch.dtype, tuple[int, ...]], ...]:
        """Type and shape of each column, in their order in memory."""
        return (
            (torch.int64, (self.num_tokens,)),  # token_ids
            (torch.int64, (self.num_tokens,)),  # positions
            (torch.int64, (self.num_tokens,)),  # slot_mapping
            (torch.int64, (self.num_rows,)),  # sample_rows
            (torch.int32, (self.num_seqs + 1,)),  # query_starts
            (torch.int32, (self.num_seqs,)),  # context_lens
            (torch.int32, (self.num_seqs, self.max_blocks)),  # block_tables
            (torch.int64, (self.num_samples,)),  # logit_rows
            (torch.uint8, (self.num_samples, ROW_BYTES)),  # sampling
            (torch.int64, (self.num_scored,)),  # scored_token_ids
        )

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each column begins, in bytes, and where the last one ends."""
        starts = [0]
        for dtype, shape in self.columns:
            num_bytes = dtype.itemsize * math.prod(shape)
            starts.append(starts[-1] + num_bytes + -num_bytes % _ALIGNMENT)
        return tuple(starts)

    @property
    def num_bytes(self) -> int:
        """Of all columns."""
        return self.starts[-1]


@dataclass(frozen=True, slots=True, eq=False)
class StagedStep:
    """A step's input, all of it in one buffer."""

    model_input: ModelInput
    logit_rows: Tensor  # [num_samples] int64, the row of logits from which each token is drawn
    sampling: Tensor  # [num_samples, ROW_BYTES] uint8
    scored_token_ids: Tensor  # [num_scored] int64

    @classmethod
    def over(cls, buffer: Tensor, extents: Extents) -> "StagedStep":
        """The columns of a step in ``buffer`` [at least ``extents.num_bytes``] uint8."""
        token_ids, positions, slots, sample_rows, query_starts, context_lens, tables, logit_rows, sampling, scored = (
            buffer[start:end].view(dtype)[: math.prod(shape)].view(shape)
            for (start, end), (dtype, shape) in zip(pairwise(extents.starts), extents.columns, strict=True)
        )
        attention = AttentionBatch(query_starts, context_lens, tables)
        return cls(ModelInput(token_ids, positions, slots, sample_rows, attention), logit_rows, sampling, scored)

    def fill(self, batch: Batch) -> None:
        """Writes ``batch``, whose extents are this step's; only in host memory."""
        attention = self.model_input.attention
        for column, values in (
            (self.model_input.token_ids, batch.token_ids),
            (self.model_input.positions, batch.positions),
            (self.model_input.slot_mapping, batch.slot_mapping),
            (self.model_input.sample_rows, batch.sample_rows),
            (attention.query_starts, batch.query_starts),
            (attention.context_lens, batch.context_lens),
            (self.logit_rows, batch.logit_rows),
            (self.scored_token_ids, batch.scored_token_ids),
        ):
            column.numpy()[:] = values
        _fill_tables(attention.block_tables.numpy(), batch.block_tables)
        self.sampling.numpy()[:] = pack(batch.samples)


def extents_of(batch: Batch) -> Extents:
    """As much as ``batch`` needs."""
    return Extents(
        num_tokens=len(batch.token_ids),
        num_rows=len(batch.sample_rows),
        num_seqs=len(batch.context_lens),
        max_blocks=max(map(len, batch.block_tables), default=0),
        num_samples=len(batch.samples),
        num_scored=len(batch.scored_token_ids),
    )


class Staging:
    """A pinned buffer and its twin on the device. They grow, which moves them.

    A step may be sent once the device has read the one before.
    """

    def __init__(self, device: Device, num_bytes: int) -> None:
        self._device = device
        self._reserve(num_bytes)

    def send(self, batch: Batch, extents: Extents) -> StagedStep:
        """The batch on the device, where it arrives before what the compute stream gets next."""
        num_bytes = extents.num_bytes
        if num_bytes > len(self._pinned):
            self._reserve(2 * num_bytes)
        StagedStep.over(self._pinned, extents).fill(batch)
        self._on_device[:num_bytes].copy_(self._pinned[:num_bytes], non_blocking=True)
        return StagedStep.over(self._on_device, extents)

    def _reserve(self, num_bytes: int) -> None:
        self._pinned = self._device.pinned(num_bytes)
        self._on_device = torch.empty(num_bytes, dtype=torch.uint8, device=self._device.torch_device)


def _fill_tables(rows: npt.NDArray[np.int32], tables: Sequence[Sequence[int]]) -> None:
    """Tables as rows; entries past a table's end are 0 and never read, those past a row's end are left out."""
    rows.fill(0)
    for row, table in zip(rows, tables, strict=True):
        num_blocks = min(len(table), len(row))
        row[:num_blocks] = table[:num_blocks]
