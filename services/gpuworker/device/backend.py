"""Steps on a CUDA device, assembled: weights and device pool in its memory, the host pool pinned."""

import torch

from gpuworker.backend import Backend
from gpuworker.device.executor import NUM_PADDING_BLOCKS, DeviceExecutor
from gpuworker.device.rows import CudaRows
from gpuworker.kernels.cuda import CudaOps, check_shape
from gpuworker.model.llama import Llama, cache_shape
from gpuworker.settings import Dtype, Settings
from gpuworker.weights.loading import content_digest
from gpuworker.weights.source import WeightSource

_KV_SHARE = 0.85  # of the memory that weights leave; the rest is for activations, graphs and fragments


def cuda_backend(settings: Settings, source: WeightSource, max_model_len: int, ops: CudaOps | None = None) -> Backend:
    """The weights of ``source`` on torch's current device. Raises ``WorkerError`` or ``KernelError``."""
    ops = CudaOps() if ops is None else ops
    dtype = choose_dtype(settings.dtype)
    check_shape(cache_shape(source.config, 1, settings.block_size))
    rows = CudaRows(ops.library, ops.device, dtype)
    model = Llama(source, dtype, max_model_len, ops.device.torch_device, rows)

    def make_executor(num_device_blocks: int, num_host_blocks: int) -> DeviceExecutor:
        device_shape = cache_shape(source.config, num_device_blocks + NUM_PADDING_BLOCKS, settings.block_size)
        host_shape = cache_shape(source.config, num_host_blocks, settings.block_size)
        return DeviceExecutor(model, ops, ops.allocate(device_shape, dtype), ops.allocate_host(host_shape, dtype))

    dtype_name = str(dtype).removeprefix("torch.")
    return Backend(
        dtype_name,
        ops.name,
        (dtype_name, "cuda"),
        content_digest(source),
        cache_shape(source.config, 1, settings.block_size).block_bytes(dtype),
        make_executor,
        device_kv_bytes=int(ops.device.free_bytes() * _KV_SHARE),
    )


def choose_dtype(asked: Dtype) -> torch.dtype:
    """The type of weights and KV: bfloat16 unless another is asked for."""
    dtype: torch.dtype = getattr(torch, Dtype.BFLOAT16 if asked is Dtype.AUTO else asked)
    return dtype
