"""The Llama family: a plain torch program over a ragged batch, without padding.

With bfloat16 weights, products and KV are bfloat16; what runs along the residual stream, the norms, the rotation and
the gate are float32. A residual in bfloat16 would cost several percent of the logits in models with large outliers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from gpuworker.kernels import AttentionBatch, KernelOps, KVCache, KVCacheShape
from gpuworker.model.config import ModelConfig
from gpuworker.model.rotary import Rotary
from gpuworker.model.rows import RowOps, TorchRows
from gpuworker.weights.source import EMBEDDING, FINAL_NORM, LM_HEAD, WeightSource, layer_tensor

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, eq=False)
class ModelInput:
    """The tokens of one step, sequences one after the other."""

    token_ids: Tensor  # [num_tokens] int64
    positions: Tensor  # [num_tokens] int64
    slot_mapping: Tensor  # [num_tokens] int64, where each token's KV is stored
    sample_rows: Tensor  # [num_samples] int64, the tokens after which one is sampled
    attention: AttentionBatch


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One layer's weights; products with the same input are fused into one."""

    input_norm: Tensor  # [hidden] float32
    qkv: Tensor  # [(num_heads + 2 num_kv_heads) head_size, hidden]
    output: Tensor  # [hidden, num_heads head_size]
    mlp_norm: Tensor  # [hidden] float32
    gate_up: Tensor  # [2 intermediate, hidden]
    down: Tensor  # [hidden, intermediate]


class Llama:
    """Weights in ``dtype`` on ``device`` and the forward pass over them, whose input must lie there too."""

    def __init__(
        self,
        source: WeightSource,
        dtype: torch.dtype,
        max_model_len: int,
        device: torch.device = _CPU,
        rows: RowOps | None = None,
    ) -> None:
        """``rows`` are plain torch unless others are given."""
        self.config = source.config
        self.max_model_len = max_model_len
        self._scale = self.config.head_size**-0.5
        self._rows: RowOps = TorchRows(dtype) if rows is None else rows
        self._rotary = Rotary(self.config, max_model_len, device)
        self._embedding = source.tensor(EMBEDDING).to(device, dtype)  # [vocab, hidden]
        tied = self.config.tie_word_embeddings
        self._lm_head = self._embedding if tied else source.tensor(LM_HEAD).to(device, dtype)  # [vocab, hidden]
        self._final_norm = source.tensor(FINAL_NORM).to(device, torch.float32)  # [hidden]
        self._layers = [_load_layer(source, index, dtype, device) for index in range(self.config.num_layers)]

    @torch.inference_mode()
    def forward(self, batch: ModelInput, ops: KernelOps, cache: KVCache) -> Tensor:
        """Writes the tokens' KV into ``cache`` and returns the logits [num_samples, vocab] of the sampled rows."""
        num_kv_heads, num_tokens = self.config.num_kv_heads, batch.token_ids.numel()
        rows, epsilon = self._rows, self.config.rms_norm_eps
        turn = rows.turning(self._rotary, batch.positions)
        residual = F.embedding(batch.token_ids, self._embedding).float()  # [num_tokens, hidden]
        update = None  # [num_tokens, hidden], not yet added to the residual
        for index, layer in enumerate(self._layers):
            heads = F.linear(rows.add_and_norm(residual, update, layer.input_norm, epsilon), layer.qkv)
            heads = heads.view(num_tokens, -1, self.config.head_size)  # queries, keys, values
            turned = turn(heads[:, :-num_kv_heads])  # queries, keys
            query, key, value = turned[:, :-num_kv_heads], turned[:, -num_kv_heads:], heads[:, -num_kv_heads:]
            ops.write_kv(key, value, cache, index, batch.slot_mapping)
            attended = ops.paged_attention(query, cache, index, batch.attention, self._scale)
            update = F.linear(attended.view(num_tokens, -1), layer.output)
            gate_up = F.linear(rows.add_and_norm(residual, update, layer.mlp_norm, epsilon), layer.gate_up)
            update = F.linear(rows.silu_mul(gate_up), layer.down)
        last = None if update is None else update[batch.sample_rows]
        return F.linear(rows.add_and_norm(residual[batch.sample_rows], last, self._final_norm, epsilon), self._lm_head)


def cache_shape(config: ModelConfig, num_blocks: int, block_size: int) -> KVCacheShape:
    """Extents of a KV pool of ``num_blocks`` blocks of ``block_size`` tokens for a model of this configuration."""
    return KVCacheShape(num_blocks, config.num_layers, config.num_kv_heads, block_size, config.head_size)


def _load_layer(source: WeightSource, layer_index: int, dtype: torch.dtype, device: torch.device) -> _Layer:
    def load(*names: str) -> Tensor:
        parts = [source.tensor(layer_tensor(layer_index, name)).to(device, dtype) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def load_norm(name: str) -> Tensor:
        return source.tensor(layer_tensor(layer_index, name)).to(device, torch.float32)

    return _Layer(
        input_norm=load_norm("input_layernorm.weight"),
        qkv=load("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
        output=load("self_attn.o_proj.weight"),
        mlp_norm=load_norm("post_attention_layernorm.weight"),
        gate_up=load("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        down=load("mlp.down_proj.weight"),
    )
