"""Carries out the moves of a step and computes its batch in one call of the library; it decides nothing."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gpuworker.core.batch import Batch
from gpuworker.core.steps import BlockChanges, Drawn
from gpuworker.core.tables import BlockTable
from gpuworker.library import CopyBlocksParams, SwapBlocksParams
from gpuworker.native.library import StepLibrary
from gpuworker.native.model import NativeModel
from gpuworker.native.pool import Pool
from gpuworker.native.sampling import Sampling
from gpuworker.native.structs import PHASES, StepParams
from gpuworker.row_structs import SampleParams

Logits = npt.NDArray[np.float32]  # [num_rows, vocab_size]


class NativeExecutor:
    """A model of the library and its two KV pools."""

    def __init__(self, library: StepLibrary, model: NativeModel, device_pool: Pool, host_pool: Pool) -> None:
        self._library = library
        self._model = model
        self._device_pool = device_pool
        self._host_pool = host_pool
        self._phase_ns = np.zeros(len(PHASES), dtype=np.int64)

    def move(self, changes: BlockChanges) -> None:
        """Swap-outs, then swap-ins, then copies; each in the order given (paper §4.4, §4.5)."""
        self._swap(self._device_pool, self._host_pool, changes.swap_outs)
        self._swap(self._host_pool, self._device_pool, changes.swap_ins)
        if changes.copies:
            pairs = np.array(changes.copies, dtype=np.int64)
            params = CopyBlocksParams(self._device_pool.struct, pairs.ctypes.data, len(pairs) // 2)
            self._library.check(self._library.copy_blocks(params))

    def compute(self, batch: Batch) -> Drawn:
        """The tokens of ``batch.samples``. Raises ``LogitsNotFinite``, by sample, once all KV is written."""
        if not batch.token_ids:
            return Drawn()
        sampling = Sampling(batch, self._model.config.vocab_size)
        self._step(batch, sampling.params)
        return replace(sampling.drawn(), phase_s=(self._phase_ns / 1e9).tolist())

    def logits(self, batch: Batch) -> Logits:
        """Logits of ``batch.sample_rows``; the KV of every token is written."""
        logits = np.empty((len(batch.sample_rows), self._model.config.vocab_size), dtype=np.float32)
        self._step(batch, SampleParams(), logits.ctypes.data)
        return logits

    def phase_ns(self) -> dict[str, int]:
        """Nanoseconds of the last step by phase, on the clock of one thread."""
        return dict(zip(PHASES, self._phase_ns.tolist(), strict=True))

    def _step(self, batch: Batch, sampling: SampleParams, logits: int | None = None) -> None:
        columns = (
            _column(batch.token_ids, np.int32),
            _column(batch.positions, np.int32),
            _column(batch.slot_mapping, np.int64),
            _column(batch.query_starts, np.int32),
            _column(batch.context_lens, np.int32),
            tables := _rectangle(batch.block_tables),
            _column(batch.sample_rows, np.int32),
        )
        params = StepParams(
            self._device_pool.struct,
            *(column.ctypes.data for column in columns),
            logits,
            self._phase_ns.ctypes.data,
            sampling,
            len(batch.token_ids),
            *tables.shape,
            len(batch.sample_rows),
        )
        self._library.check(self._library.step(self._model.handle, params))

    def _swap(self, source: Pool, destination: Pool, flat: Sequence[int]) -> None:
        if flat:
            pairs = np.array(flat, dtype=np.int64)
            params = SwapBlocksParams(source.struct, destination.struct, pairs.ctypes.data, len(pairs) // 2)
            self._library.check(self._library.swap_blocks(params))


def _column(values: Sequence[int], dtype: type[np.integer]) -> npt.NDArray[np.integer]:
    return np.fromiter(values, dtype=dtype, count=len(values))


def _rectangle(tables: Sequence[BlockTable]) -> npt.NDArray[np.int32]:
    """Tables as rows [num_seqs, longest]; entries past a table's end are 0 and never read."""
    rows = np.zeros((len(tables), max(map(len, tables))), dtype=np.int32)
    for row, table in zip(rows, tables, strict=True):
        row[: len(table)] = table
    return rows
