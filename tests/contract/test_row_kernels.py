"""Norms, rotary and activations behind the C interface, many rows at once, against torch."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from doubles.isas import runnable_isas
from gpuworker.errors import KernelInputError
from gpuworker.library import KernelLibrary
from gpuworker.row_structs import ActivationParams, NormParams, RotaryParams

DTYPES = {torch.float32: 0, torch.bfloat16: 1}
NUM_TOKENS, WIDTH = 37, 72


@pytest.fixture(params=runnable_isas())
def library(request: pytest.FixtureRequest) -> Iterator[KernelLibrary]:
    loaded = KernelLibrary()
    loaded.select_isa(request.param)
    torch.manual_seed(1)
    yield loaded
    loaded.select_isa("auto")


def assert_near(actual: Tensor, expected: Tensor) -> None:
    tolerance = 2e-6 if actual.dtype == torch.float32 else 2**-8
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_centered", [False, True])
@pytest.mark.parametrize("has_input", [False, True])
def test_norms_add_the_input_to_the_residual_first(
    library: KernelLibrary, dtype: torch.dtype, is_centered: bool, has_input: bool
) -> None:
    added = torch.randn(NUM_TOKENS, WIDTH).to(dtype)
    residual, weight, bias = torch.randn(NUM_TOKENS, WIDTH) + 3, torch.randn(WIDTH), torch.randn(WIDTH)
    expected = residual.double() + (added.double() if has_input else 0)
    output = torch.full((NUM_TOKENS, WIDTH), torch.nan).to(dtype)
    params = NormParams(
        added.data_ptr() if has_input else None,
        residual.data_ptr(),
        weight.data_ptr(),
        bias.data_ptr() if is_centered else None,
        output.data_ptr(),
        NUM_TOKENS,
        WIDTH,
        DTYPES[dtype],
        1e-5,
    )
    library.check((library.layer_norm if is_centered else library.rms_norm)(params))
    assert_near(residual, expected)
    if is_centered:
        assert_near(output, functional.layer_norm(expected, (WIDTH,), weight.double(), bias.double(), 1e-5))
    else:
        assert_near(output, functional.rms_norm(expected, (WIDTH,), weight.double(), 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotary_turns_pairs_half_a_head_apart_and_leaves_what_lies_between(
    library: KernelLibrary, dtype: torch.dtype
) -> None:
    cosines, sines = torch.randn(11, 40), torch.randn(11, 40)
    positions = torch.randint(11, (NUM_TOKENS,))
    memory = torch.randn(NUM_TOKENS, 3 * 80 + 8).to(dtype)
    before = memory.clone()
    params = RotaryParams(
        memory.data_ptr(),
        cosines.data_ptr(),
        sines.data_ptr(),
        positions.data_ptr(),
        NUM_TOKENS,
        memory.stride(0),
        3,
        80,
        DTYPES[dtype],
        11,
    )
    library.check(library.rotary(params))
    first, second = before[:, :240].view(-1, 3, 80).double().chunk(2, dim=-1)
    cosine, sine = (table[positions].unsqueeze(1).double() for table in (cosines, sines))
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    assert_near(memory[:, :240], turned.flatten(1))
    assert torch.equal(memory[:, 240:], before[:, 240:])


def silu_mul(x: Tensor) -> Tensor:
    gates, values = x.view(NUM_TOKENS, 2, WIDTH).unbind(1)
    return functional.silu(gates) * values


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu_mul": silu_mul,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_torch(library: KernelLibrary, name: str, dtype: torch.dtype) -> None:
    taken = (torch.randn(NUM_TOKENS, WIDTH * (2 if name == "silu_mul" else 1)) * 3).to(dtype)
    output = torch.full((NUM_TOKENS, WIDTH), torch.nan).to(dtype)
    params = ActivationParams(taken.data_ptr(), output.data_ptr(), NUM_TOKENS, WIDTH, DTYPES[dtype])
    library.check(getattr(library, name)(params))
    assert_near(output, ACTIVATIONS[name](taken.double()))


def test_a_position_past_the_tables_is_named_with_its_limit(library: KernelLibrary) -> None:
    table, positions, heads = torch.zeros(4, 8), torch.tensor([1, 4]), torch.zeros(2, 16)
    pointers = (heads.data_ptr(), table.data_ptr(), table.data_ptr(), positions.data_ptr())
    with pytest.raises(KernelInputError, match=r"positions\[1\] is 4, must be in 0\.\.3"):
        library.check(library.rotary(RotaryParams(*pointers, 2, 16, 1, 16, 0, 4)))


def test_a_width_that_is_no_multiple_of_eight_is_refused(library: KernelLibrary) -> None:
    row = torch.zeros(12)
    with pytest.raises(KernelInputError, match="width is 12, must be a positive multiple of 8"):
        library.check(library.gelu(ActivationParams(row.data_ptr(), row.data_ptr(), 1, 12, 0)))
