"""Small random Llama models, in the file formats that a worker reads, and their twins in `transformers`."""

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gpuworker.model.config import ModelConfig
from gpuworker.weights.source import WeightSource, tensor_shapes

VOCAB_SIZE = 96
GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def random_llama(**changes: object) -> LlamaForCausalLM:
    """Two layers, four heads that share two KV heads, weights large enough to make logits differ."""
    sizes = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "initializer_range": 0.2,
    }
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**sizes, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model


def twin(source: WeightSource) -> LlamaForCausalLM:
    """The model of ``source`` in `transformers`, float32, from the same tensors."""
    config = source.config
    assert not config.rope_divisors
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_size,
            max_position_embeddings=config.max_position,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tie_word_embeddings,
        )
    )
    tensors = {name: source.tensor(name) for name, _ in tensor_shapes(config)}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= ({"lm_head.weight"} if config.tie_word_embeddings else set())
    assert not unexpected
    model.tie_weights()
    return model.eval()


def write_gguf(
    model: LlamaForCausalLM, path: Path, quantization: str = "F32", fields: dict[str, object] | None = None
) -> Path:
    """``model`` as converters write it: matrices in ``quantization``, rows of q and k in pairs."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_token_list([f"token {index}" for index in range(config.vocab_size)])
    writer.add_array("tokenizer.ggml.scores", [float(index) for index in range(config.vocab_size)])
    for key, value in (fields or {}).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    kind = gguf.GGMLQuantizationType[quantization]
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = _as_converters_order(name, tensor.numpy(), model.config)
        matrix_kind = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(_gguf_name(name), gguf.quantize(values, matrix_kind), raw_dtype=matrix_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def naive_logits(model: LlamaForCausalLM, token_ids: list[int], num_last: int = 0) -> torch.Tensor:
    """Logits of every position, or of the last ``num_last``: [num_rows, vocab_size]. Without a KV cache."""
    with torch.inference_mode():
        return model(torch.tensor([token_ids]), use_cache=False, logits_to_keep=num_last).logits[0]


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, index, part = stem.split(".", 3)
        return f"blk.{index}.{GGUF_NAMES[part]}.weight"
    return f"{GGUF_NAMES[stem]}.weight"


def _as_converters_order(name: str, values: np.ndarray, config: LlamaConfig) -> np.ndarray:
    """Row 2i of a head is its i-th channel, row 2i + 1 the one half a head further on."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    num_heads = heads.get(name.removesuffix(".weight").rpartition(".")[2])
    if num_heads is None:
        return values
    half = config.head_dim // 2
    rows = [
        head * config.head_dim + pair + second * half
        for head in range(num_heads)
        for pair in range(half)
        for second in (0, 1)
    ]
    return np.ascontiguousarray(values[rows])


def expected_config(model: LlamaForCausalLM, rope_divisors: tuple[float, ...] = ()) -> ModelConfig:
    """What a worker should read of ``model``, whatever the file format."""
    config = model.config
    return ModelConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_size=config.head_dim,
        max_position=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_parameters["rope_theta"],
        rope_divisors=rope_divisors,
        tie_word_embeddings=config.tie_word_embeddings,
    )
