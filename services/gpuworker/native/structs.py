"""The structs of ``csrc/include/octavo_product.h`` and ``octavo_step.h``: the same names, the same fields."""

import ctypes

from gpuworker.library import CacheStruct
from gpuworker.row_structs import SampleParams

PHASES = (
    "norms",
    "qkv",
    "rotary_and_kv",
    "attention",
    "output",
    "gate_up",
    "down",
    "logits",
    "sampling",
    "waiting",
)


class MatrixStruct(ctypes.Structure):
    """``octavo_matrix``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("num_outputs", ctypes.c_int64),
        ("num_inputs", ctypes.c_int64),
        ("format", ctypes.c_int32),
    )


class PackParams(ctypes.Structure):
    """``octavo_pack_params``."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("packed", ctypes.c_void_p),
        ("num_outputs", ctypes.c_int64),
        ("num_inputs", ctypes.c_int64),
        ("format", ctypes.c_int32),
    )


class LayerStruct(ctypes.Structure):
    """``octavo_layer``."""

    _fields_ = (
        ("input_norm", ctypes.c_void_p),
        ("mlp_norm", ctypes.c_void_p),
        ("query", MatrixStruct),
        ("key", MatrixStruct),
        ("value", MatrixStruct),
        ("output", MatrixStruct),
        ("gate", MatrixStruct),
        ("up", MatrixStruct),
        ("down", MatrixStruct),
    )


class ModelParams(ctypes.Structure):
    """``octavo_model_params``."""

    _fields_ = (
        ("layers", ctypes.c_void_p),
        ("embedding", MatrixStruct),
        ("lm_head", MatrixStruct),
        ("final_norm", ctypes.c_void_p),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("num_positions", ctypes.c_int64),
        ("num_layers", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_kv_heads", ctypes.c_int32),
        ("head_size", ctypes.c_int32),
        ("precision", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
        ("rms_norm_eps", ctypes.c_float),
    )


class StepParams(ctypes.Structure):
    """``octavo_step_params``."""

    _fields_ = (
        ("cache", CacheStruct),
        ("token_ids", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("slot_mapping", ctypes.c_void_p),
        ("query_starts", ctypes.c_void_p),
        ("context_lens", ctypes.c_void_p),
        ("block_tables", ctypes.c_void_p),
        ("logit_rows", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
        ("phase_ns", ctypes.c_void_p),
        ("sampling", SampleParams),
        ("num_tokens", ctypes.c_int64),
        ("num_seqs", ctypes.c_int32),
        ("max_blocks", ctypes.c_int32),
        ("num_logit_rows", ctypes.c_int32),
    )
