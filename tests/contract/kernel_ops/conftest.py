"""What every ``KernelOps`` promises: the same tests for each implementation that runs here."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from doubles import emulated_cuda
from gpuworker.kernels import KernelInputError, KernelOps, load_ops
from gpuworker.kernels import cuda as cuda_kernels
from gpuworker.kernels.cpu import CpuOps
from gpuworker.kernels.cuda import CudaOps, Splitting

CUDA = {"one pass": Splitting.NEVER, "split": Splitting.ALWAYS}


def runnable_implementations() -> list[str]:
    cpu_ops, names = CpuOps(), ["reference"]
    for isa in ("portable", "avx2", "avx512"):
        with suppress(KernelInputError):
            cpu_ops.select_isa(isa)
            names.append(cpu_ops.name)
    cpu_ops.select_isa("auto")
    if emulated_cuda.LIBRARY.is_file():
        names += [f"emulated-cuda[{splitting}]" for splitting in CUDA]
    if cuda_kernels.can_be_used():
        names += [f"cuda[{splitting}]" for splitting in CUDA]
    return names


@pytest.fixture(params=runnable_implementations())
def ops(request: pytest.FixtureRequest) -> Iterator[KernelOps]:
    """On a real device all tensors of a test lie there."""
    implementation, _, variant = request.param.removesuffix("]").partition("[")
    if implementation == "reference":
        yield load_ops("reference")
    elif implementation == "emulated-cuda":
        yield emulated_cuda.emulated_ops(CUDA[variant])
    elif implementation == "cuda":
        cuda_ops = CudaOps(splitting=CUDA[variant], reads_ids=True)
        with cuda_ops.device.torch_device:
            yield cuda_ops
    else:
        cpu_ops = CpuOps()
        cpu_ops.select_isa(variant)
        yield cpu_ops
        cpu_ops.select_isa("auto")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
