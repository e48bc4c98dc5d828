"""Products with packed weights, held against the gguf library's dequantization in float64."""

from collections.abc import Iterator
from contextlib import suppress

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from gpuworker.errors import KernelInputError
from gpuworker.native.formats import WeightFormat, to_float32
from gpuworker.native.library import StepLibrary
from gpuworker.native.precision import Precision
from gpuworker.native.products import PackedWeights, Products

LIBRARY = StepLibrary()
PRODUCTS = Products(LIBRARY)
NUM_OUTPUTS = 75  # two panels and a part of one
KINDS = {weight_format: weight_format.ggml_type.name for weight_format in WeightFormat}
WAYS = [
    (weight_format, precision)
    for weight_format in WeightFormat
    for precision in Precision
    if weight_format.is_quantized or precision is not Precision.INT8
]
HALVES = {"Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q4_K": (0, 2), "Q6_K": (208,)}  # where scales lie in a block


def runnable_isas() -> list[str]:
    names = []
    for name in ("portable", "avx2", "avx512", "avx512_bf16", "amx"):
        with suppress(KernelInputError):
            LIBRARY.select_isa(name)
            names.append(name)
    LIBRARY.select_isa("auto")
    return names


@pytest.fixture(params=runnable_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    LIBRARY.select_isa(request.param)
    yield request.param
    LIBRARY.select_isa("auto")


def random_rows(weight_format: WeightFormat, num_inputs: int) -> npt.NDArray[np.uint8]:
    """Any bits for the quants, scales of either sign about 1/64."""
    random = np.random.default_rng(7)
    kind = KINDS[weight_format]
    if kind not in HALVES:
        values = random.normal(size=(NUM_OUTPUTS, num_inputs)).astype(np.float32) / 16
        bits = values.view(np.uint32)
        return (bits >> 16).astype(np.uint16).view(np.uint8) if kind == "BF16" else values.view(np.uint8)
    inputs, num_bytes = gguf.GGML_QUANT_SIZES[weight_format.ggml_type]
    blocks = random.integers(256, size=(NUM_OUTPUTS * num_inputs // inputs, num_bytes), dtype=np.uint8)
    for place in HALVES[kind]:
        scales = random.normal(size=(len(blocks), 1)).astype(np.float16) / 64
        blocks[:, place : place + 2] = scales.astype(np.float16).view(np.uint8)
    return blocks.reshape(NUM_OUTPUTS, -1)


def packed(weight_format: WeightFormat, num_inputs: int = 768) -> tuple[PackedWeights, npt.NDArray[np.float32]]:
    rows = random_rows(weight_format, num_inputs)
    return PRODUCTS.pack(weight_format, rows, num_inputs), to_float32(KINDS[weight_format], rows)


def to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def to_bytes(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Each 32 as whole multiples of a 127th of the largest magnitude."""
    groups = values.reshape(-1, 32)
    largest = np.abs(groups).max(axis=1, keepdims=True)
    return (np.rint(groups * (np.float32(127) / largest)) * largest.astype(np.float64) / 127).reshape(values.shape)


def activations(num_rows: int, num_inputs: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(3).normal(size=(num_rows, num_inputs)).astype(np.float32)


@pytest.mark.parametrize("weight_format", WeightFormat)
def test_a_packed_row_is_dequantized_as_gguf_does_bit_for_bit(weight_format: WeightFormat) -> None:
    weights, expected = packed(weight_format)
    outputs = np.array([74, 0, 31, 32, 63, 64, 0], np.int64)
    assert np.array_equal(PRODUCTS.unpack(weights, outputs), expected[outputs])


@pytest.mark.parametrize("num_rows", [1, 3, 32, 61])
@pytest.mark.parametrize(("weight_format", "precision"), WAYS)
def test_a_product_is_that_of_the_dequantized_weights(
    weight_format: WeightFormat, precision: Precision, num_rows: int, isa: str
) -> None:
    weights, values = packed(weight_format)
    x = activations(num_rows, weights.num_inputs)
    y = PRODUCTS.multiply(weights, x, precision)
    if precision is Precision.BFLOAT16 and isa in ("avx512_bf16", "amx"):
        x, values = to_bfloat16(x), to_bfloat16(values)
    if precision is Precision.INT8:
        x = to_bytes(x)
    exact = x.astype(np.float64) @ values.T.astype(np.float64)
    magnitude = np.abs(x).astype(np.float64) @ np.abs(values.T).astype(np.float64)
    assert np.all(np.abs(y - exact) <= 2e-6 * magnitude)


@pytest.mark.parametrize(("weight_format", "precision"), WAYS)
def test_a_row_of_a_product_has_the_same_bits_among_any_others(
    weight_format: WeightFormat, precision: Precision, isa: str
) -> None:
    weights, _ = packed(weight_format)
    x = activations(130, weights.num_inputs)
    together = PRODUCTS.multiply(weights, x, precision)
    for first, last in [(0, 1), (129, 130), (1, 3), (3, 17), (17, 34), (0, 48), (41, 130)]:
        assert np.array_equal(PRODUCTS.multiply(weights, x[first:last], precision), together[first:last])


def test_weights_that_are_not_quantized_are_refused_beside_bytes() -> None:
    weights, _ = packed(WeightFormat.BFLOAT16)
    with pytest.raises(KernelInputError, match=r"weights.format is 1, must be a quantized format"):
        PRODUCTS.multiply(weights, activations(1, weights.num_inputs), Precision.INT8)


def test_what_cannot_be_packed_is_refused_with_the_limit() -> None:
    rows = np.zeros((2, 20), np.uint8)
    with pytest.raises(KernelInputError, match="its rows must be multiples of 32"):
        PRODUCTS.pack(WeightFormat.Q4_1, rows, 33)
    weights, _ = packed(WeightFormat.Q8_0)
    with pytest.raises(KernelInputError, match=r"outputs\[1\] is 75, must be in 0..74"):
        PRODUCTS.unpack(weights, np.array([0, NUM_OUTPUTS], np.int64))
