"""Carries out the moves of a step, computes its batch and draws its tokens on a device; it decides nothing."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpuworker.core.batch import Batch
from gpuworker.core.steps import NO_TOKEN, BlockChanges, BlockId, Drawn, Sample
from gpuworker.device.decode_graphs import NUM_SEQS, DecodeGraphs, GraphShape
from gpuworker.device.staging import StagedStep, Staging, extents_of
from gpuworker.errors import LogitsNotFinite
from gpuworker.executor import move_blocks
from gpuworker.kernels import KVCache
from gpuworker.kernels.cuda import CudaOps
from gpuworker.logprobs import read_scores, score_table
from gpuworker.model.llama import Llama, ModelInput
from gpuworker.row_structs import NOT_FINITE
from gpuworker.sampling import with_rules

Table = npt.NDArray[np.float64]

NUM_PADDING_BLOCKS = 1  # at the end of the device pool, for the padding of graphs

_FIRST_STAGING_BYTES = 1 << 20
_FIRST_RESULTS = 1 << 12


class DeviceExecutor:
    """A model on a device, its two KV pools and the kernels that work on them.

    ``device_pool`` ends with ``NUM_PADDING_BLOCKS`` blocks that no sequence may have. Every step is waited for, so that
    its faults are its own.
    """

    def __init__(
        self,
        model: Llama,
        ops: CudaOps,
        device_pool: KVCache,
        host_pool: KVCache,
        graph_sizes: Sequence[int] = NUM_SEQS,
    ) -> None:
        """Records the graphs of decode steps, which takes seconds."""
        self.model = model
        self._ops = ops
        self.device_pool = device_pool
        self.host_pool = host_pool
        self._staging = Staging(ops.device, _FIRST_STAGING_BYTES)
        self._results = ops.device.pinned(_FIRST_RESULTS * torch.float64.itemsize).view(torch.float64)
        shape = device_pool.shape
        padding_block = BlockId(shape.num_blocks - NUM_PADDING_BLOCKS)
        graph_shape = GraphShape.of(model.max_model_len, shape.block_size, padding_block)
        self._graphs = DecodeGraphs(self._forward, ops.device, replace(graph_shape, sizes=graph_sizes))

    def move(self, changes: BlockChanges) -> None:
        """Swap-outs, then swap-ins, then copies; each in the order given (paper §4.4, §4.5)."""
        move_blocks(changes, self._ops, self.device_pool, self.host_pool)

    @torch.inference_mode()
    def compute(self, batch: Batch) -> Drawn:
        """The tokens of ``batch.samples``. Raises ``LogitsNotFinite``, by sample, once all KV is written."""
        if not batch.token_ids:
            return Drawn()
        staged, logits = self._graphs.run(batch) or self._run(batch)
        num_drawn = len(logits) - len(batch.scored_token_ids)
        drawn, scored = logits[:num_drawn], logits[num_drawn:]
        if len(batch.samples) > num_drawn:
            drawn = drawn[staged.logit_rows]
        token_ids = self._draw(drawn, staged.sampling, batch.samples)
        num_top = [entry.params.num_top_logprobs for entry in batch.samples]
        tables = self._fetch(
            token_ids.double().unsqueeze(1),
            score_table(drawn, token_ids, max(num_top, default=0)),
            score_table(scored, staged.scored_token_ids, max(batch.scored_num_top, default=0)),
        )
        return _read(batch, *tables)

    def _run(self, batch: Batch) -> tuple[StagedStep, Tensor]:
        """A step that no graph fits."""
        staged = self._staging.send(batch, extents_of(batch))
        return staged, self._forward(staged.model_input)

    def _forward(self, model_input: ModelInput) -> Tensor:
        return self.model.forward(model_input, self._ops, self.device_pool)

    def _draw(self, logits: Tensor, sampling: Tensor, samples: Sequence[Sample]) -> Tensor:
        """Tokens [num_samples]; ``NOT_FINITE`` where the model's own logits are not."""
        ruled = [row for row, sample in enumerate(samples) if sample.is_ruled]
        if not ruled:
            return self._ops.sample(logits, sampling)
        token_ids = self._ops.sample(with_rules(logits.float(), samples, ruled), sampling)
        return token_ids.masked_fill(~logits.amax(dim=-1).isfinite(), NOT_FINITE)

    def _fetch(self, *tables: Tensor) -> list[Table]:
        """Tables of float64 on the host, in one copy."""
        values = torch.cat([table.flatten() for table in tables])
        if len(values) > len(self._results):
            self._results = self._ops.device.pinned(2 * values.nbytes).view(torch.float64)
        self._results[: len(values)].copy_(values, non_blocking=True)
        self._ops.device.synchronize()
        on_host = np.split(self._results[: len(values)].numpy(), np.cumsum([table.numel() for table in tables])[:-1])
        return [part.reshape(table.shape) for part, table in zip(on_host, tables, strict=True)]


def _read(batch: Batch, drawn: Table, scores: Table, scored: Table) -> Drawn:
    token_ids: list[int] = drawn[:, 0].astype(np.int64).tolist()
    not_finite = [
        row
        for row, (token_id, sample) in enumerate(zip(token_ids, batch.samples, strict=True))
        if token_id == NOT_FINITE or (token_id == NO_TOKEN and not sample.is_ruled)
    ]
    if not_finite:
        raise LogitsNotFinite(not_finite)
    num_top = [entry.params.num_top_logprobs for entry in batch.samples]
    return Drawn(
        token_ids,
        read_scores(scores, token_ids, num_top),
        read_scores(scored, batch.scored_token_ids, batch.scored_num_top),
    )
