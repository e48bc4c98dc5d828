"""Carries out the moves of a step, computes its batch and draws its tokens; it decides nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpuworker.core.batch import Batch
from gpuworker.core.steps import BlockChanges, Drawn
from gpuworker.core.tables import BlockTable
from gpuworker.kernels import AttentionBatch, KernelOps, KVCache
from gpuworker.logprobs import scores
from gpuworker.model.llama import Llama, ModelInput
from gpuworker.sampling import sample


@dataclass(frozen=True, slots=True, eq=False)
class Executor:
    """A model, its two KV pools and the kernels that work on them."""

    model: Llama
    ops: KernelOps
    device_pool: KVCache
    host_pool: KVCache

    def move(self, changes: BlockChanges) -> None:
        """Swap-outs, then swap-ins, then copies; each in the order given (paper §4.4, §4.5)."""
        move_blocks(changes, self.ops, self.device_pool, self.host_pool)

    def compute(self, batch: Batch) -> Drawn:
        """The tokens of ``batch.samples``. Raises ``LogitsNotFinite``, by sample, once all KV is written."""
        if not batch.token_ids:
            return Drawn()
        logits = self.logits(batch)
        num_drawn = len(logits) - len(batch.scored_token_ids)
        drawn, scored = logits[:num_drawn], logits[num_drawn:]
        if len(batch.samples) > num_drawn:
            drawn = drawn[batch.logit_rows]
        token_ids = sample(drawn, batch.samples)
        num_top = [entry.params.num_top_logprobs for entry in batch.samples]
        return Drawn(
            token_ids, scores(drawn, token_ids, num_top), scores(scored, batch.scored_token_ids, batch.scored_num_top)
        )

    def logits(self, batch: Batch) -> Tensor:
        """Logits [num_rows, vocab_size] of ``batch.sample_rows``; the KV of every token is written."""
        return self.model.forward(to_tensors(batch), self.ops, self.device_pool)


def move_blocks(changes: BlockChanges, ops: KernelOps, device_pool: KVCache, host_pool: KVCache) -> None:
    """The moves of a step, in the order in which its blocks change hands."""
    if changes.swap_outs:
        ops.swap_blocks(device_pool, host_pool, _pairs(changes.swap_outs))
    if changes.swap_ins:
        ops.swap_blocks(host_pool, device_pool, _pairs(changes.swap_ins))
    if changes.copies:
        ops.copy_blocks(device_pool, _pairs(changes.copies))


def to_tensors(batch: Batch) -> ModelInput:
    """The batch as the model takes it."""
    attention = AttentionBatch(
        query_starts=torch.tensor(batch.query_starts, dtype=torch.int32),
        context_lens=torch.tensor(batch.context_lens, dtype=torch.int32),
        block_tables=_rectangle(batch.block_tables),
    )
    return ModelInput(
        token_ids=torch.tensor(batch.token_ids, dtype=torch.int64),
        positions=torch.tensor(batch.positions, dtype=torch.int64),
        slot_mapping=torch.tensor(batch.slot_mapping, dtype=torch.int64),
        sample_rows=torch.tensor(batch.sample_rows, dtype=torch.int64),
        attention=attention,
    )


def _rectangle(tables: Sequence[BlockTable]) -> Tensor:
    """Tables as rows [num_seqs, longest] int32; entries past a table's end are 0 and never read."""
    rows = np.zeros((len(tables), max(map(len, tables))), dtype=np.int32)
    for row, table in zip(rows, tables, strict=True):
        row[: len(table)] = table
    return torch.from_numpy(rows)


def _pairs(flat: Sequence[int]) -> Tensor:
    return torch.tensor(flat, dtype=torch.int64).view(-1, 2)
