"""Steps as a torch program that calls the kernels: the reference for the others."""

import torch

from gpuworker.backend import Backend
from gpuworker.executor import Executor
from gpuworker.kernels import load_ops
from gpuworker.machine import has_fast_bfloat16, num_cores
from gpuworker.model.llama import Llama, cache_shape
from gpuworker.settings import Dtype, Settings
from gpuworker.weights.loading import content_digest
from gpuworker.weights.source import WeightSource


def torch_backend(settings: Settings, source: WeightSource, max_model_len: int) -> Backend:
    """The weights of ``source`` in torch. Raises ``WorkerError`` or ``KernelError``."""
    torch.set_num_threads(settings.threads or num_cores())
    dtype = choose_dtype(settings.dtype)
    ops = load_ops(settings.kernels.value)
    model = Llama(source, dtype, max_model_len)

    def make_executor(num_device_blocks: int, num_host_blocks: int) -> Executor:
        device_pool, host_pool = (
            ops.allocate(cache_shape(source.config, num_blocks, settings.block_size), dtype)
            for num_blocks in (num_device_blocks, num_host_blocks)
        )
        return Executor(model, ops, device_pool, host_pool)

    dtype_name = str(dtype).removeprefix("torch.")
    block_bytes = cache_shape(source.config, 1, settings.block_size).block_bytes(dtype)
    return Backend(dtype_name, ops.name, (dtype_name, "torch"), content_digest(source), block_bytes, make_executor)


def choose_dtype(asked: Dtype) -> torch.dtype:
    """The type of weights and KV."""
    if asked is Dtype.AUTO:
        asked = Dtype.BFLOAT16 if has_fast_bfloat16() else Dtype.FLOAT32
    dtype: torch.dtype = getattr(torch, asked)
    return dtype
