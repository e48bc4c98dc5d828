"""Structs of ``csrc/include/octavo.h`` for what is done to single rows: rotary, norms, activations, sampling."""

import ctypes

NOT_FINITE = -1  # OCTAVO_LOGITS_NOT_FINITE


class RotaryParams(ctypes.Structure):
    """``octavo_rotary_params``."""

    _fields_ = (
        ("heads", ctypes.c_void_p),
        ("cosines", ctypes.c_void_p),
        ("sines", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("token_stride", ctypes.c_int64),
        ("num_heads", ctypes.c_int32),
        ("head_size", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("num_positions", ctypes.c_int64),
    )


class NormParams(ctypes.Structure):
    """``octavo_norm_params``."""

    _fields_ = (
        ("input", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("hidden_size", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("epsilon", ctypes.c_float),
    )


class ActivationParams(ctypes.Structure):
    """``octavo_activation_params``."""

    _fields_ = (
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("width", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class SamplingRow(ctypes.Structure):
    """``octavo_sampling_row``."""

    _fields_ = (
        ("top_p", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("seen_start", ctypes.c_int64),
        ("seen_end", ctypes.c_int64),
        ("mask_start", ctypes.c_int64),
        ("mask_end", ctypes.c_int64),
        ("allowed_start", ctypes.c_int64),
        ("allowed_end", ctypes.c_int64),
        ("forbidden_start", ctypes.c_int64),
        ("forbidden_end", ctypes.c_int64),
        ("biased_start", ctypes.c_int64),
        ("biased_end", ctypes.c_int64),
        ("top_start", ctypes.c_int64),
        ("num_top", ctypes.c_int32),
        ("is_known", ctypes.c_int32),
        ("position", ctypes.c_uint32),
        ("choice_index", ctypes.c_uint32),
        ("top_k", ctypes.c_int32),
        ("temperature", ctypes.c_float),
        ("log_min_p", ctypes.c_float),
        ("repetition_penalty", ctypes.c_float),
        ("frequency_penalty", ctypes.c_float),
        ("presence_penalty", ctypes.c_float),
    )


ROW_BYTES = ctypes.sizeof(SamplingRow)


class SampleParams(ctypes.Structure):
    """``octavo_sample_params``."""

    _fields_ = (
        ("logits", ctypes.c_void_p),
        ("logits_rows", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("masks", ctypes.c_void_p),
        ("allowed_token_ids", ctypes.c_void_p),
        ("forbidden_token_ids", ctypes.c_void_p),
        ("biased_token_ids", ctypes.c_void_p),
        ("biases", ctypes.c_void_p),
        ("seen_token_ids", ctypes.c_void_p),
        ("output_counts", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("token_ids", ctypes.c_void_p),
        ("logprobs", ctypes.c_void_p),
        ("top_token_ids", ctypes.c_void_p),
        ("top_logprobs", ctypes.c_void_p),
        ("num_logits", ctypes.c_int64),
        ("num_rows", ctypes.c_int32),
        ("vocab_size", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )
