"""From settings to an engine: weights, kernels, pools. The slow part of a start, with the time of each stage."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gpuworker.backend import Backend
from gpuworker.core.state import Limits
from gpuworker.engine import Engine, Identity
from gpuworker.errors import SettingsInvalid
from gpuworker.library import CUDA, installed_library
from gpuworker.machine import available_memory_bytes, has_nvidia_driver
from gpuworker.model.config import ModelConfig
from gpuworker.native.backend import can_compute, native_backend
from gpuworker.settings import Activations, Dtype, Kernels, Settings, StepKind, Weights
from gpuworker.weights.loading import fingerprint, open_weights
from gpuworker.weights.source import WeightSource

logger = logging.getLogger(__name__)

_MOST_DEFAULT_KV_BYTES = 2**30
_MOST_DEFAULT_PINNED_BYTES = 2**32


def assemble(settings: Settings) -> Engine:
    """An engine that is ready to compute. Call it in the thread that will: thread teams belong to their caller."""
    with _stage("weights opened"):
        source = open_weights(settings.model)
    max_model_len = choose_max_model_len(settings.max_model_len, source.config.max_position)
    with _stage("weights loaded"):
        backend = load_backend(settings, source, max_model_len)
    num_device_blocks, num_host_blocks = choose_num_blocks(settings, backend.block_bytes, backend.device_kv_bytes)
    limits = Limits(settings.block_size, num_device_blocks, num_host_blocks, max_model_len, source.config.vocab_size)
    identity = Identity(
        settings.worker_id,
        source.name,
        fingerprint(source, backend.content_digest, *backend.arithmetic),
        backend.dtype,
        backend.kernels,
        backend.block_bytes,
        limits,
        backend.phase_names,
    )
    logger.info("%s in %s with kernels %s, %s", source.name, backend.dtype, backend.kernels, limits)
    with _stage("KV pools allocated"):
        return Engine(identity, backend.make_executor(num_device_blocks, num_host_blocks))


def load_backend(settings: Settings, source: WeightSource, max_model_len: int) -> Backend:
    """The model with what computes it."""
    step = choose_step(settings, source.config)
    if uses_cuda(settings):
        from gpuworker.device.backend import cuda_backend  # noqa: PLC0415 (importing torch takes seconds)

        return cuda_backend(settings, source, max_model_len)
    if settings.dtype is Dtype.FLOAT16 and settings.kernels is not Kernels.REFERENCE:
        raise SettingsInvalid("--dtype is float16, but the cpu kernels have float32 and bfloat16")
    if step is StepKind.NATIVE:
        return native_backend(settings, source, max_model_len)
    from gpuworker.torch_backend import torch_backend  # noqa: PLC0415 (importing torch takes seconds)

    return torch_backend(settings, source, max_model_len)


def uses_cuda(settings: Settings) -> bool:
    """Whether steps are computed on a CUDA device: if asked for, or if one can be used and no setting rules it out."""
    if settings.kernels is not Kernels.AUTO:
        return settings.kernels is Kernels.CUDA
    needs_cpu = settings.step is StepKind.NATIVE or settings.activations is Activations.INT8
    fits = not needs_cpu and settings.weights.value in (Weights.AUTO, settings.dtype.value)
    if not fits or not has_nvidia_driver() or not installed_library(CUDA).is_file():
        return False
    from gpuworker.kernels.cuda import can_be_used  # noqa: PLC0415 (importing torch takes seconds)

    return can_be_used()


def choose_step(settings: Settings, config: ModelConfig) -> StepKind:
    """Who computes the steps. Raises ``SettingsInvalid`` where that contradicts other settings or the model."""
    has_kernels = settings.kernels in (Kernels.AUTO, Kernels.CPU)
    if settings.step is StepKind.NATIVE and not has_kernels:
        raise SettingsInvalid(f"--kernels is {settings.kernels}, but --step native needs cpu")
    if settings.step is StepKind.NATIVE and not can_compute(config):
        raise SettingsInvalid(f"--step is native, but it cannot compute heads of {config.head_size}")
    native = settings.step is not StepKind.TORCH and has_kernels and can_compute(config)
    if not native and settings.weights.value not in (Weights.AUTO, settings.dtype.value):
        raise SettingsInvalid(f"--weights is {settings.weights}, but steps in torch have the weights in the --dtype")
    if not native and settings.activations is Activations.INT8:
        raise SettingsInvalid("--activations is int8, but steps in torch multiply floats")
    return StepKind.NATIVE if native else StepKind.TORCH


def choose_max_model_len(asked: int | None, max_position: int) -> int:
    """The longest sequence in tokens; the model's own limit where none is asked for."""
    if asked is not None and asked > max_position:
        raise SettingsInvalid(f"--max-model-len is {asked}, but the model has {max_position} positions")
    return asked or max_position


def choose_num_blocks(settings: Settings, block_bytes: int, device_kv_bytes: int | None = None) -> tuple[int, int]:
    """Blocks of the device and of the host pool.

    Without a number or a budget, the device pool takes ``device_kv_bytes``, or, in host memory, a quarter of what is
    available, 1 GiB at most. The host pool has half as many blocks, committed when the first one is swapped; beside a
    device it is pinned from the start, and takes a quarter of what is available or 4 GiB at most.
    """
    num_device_blocks = settings.num_device_blocks
    host_bytes = available_memory_bytes() // 4
    if num_device_blocks is None:
        default = min(host_bytes, _MOST_DEFAULT_KV_BYTES) if device_kv_bytes is None else device_kv_bytes
        budget = settings.kv_memory_bytes or default
        num_device_blocks = budget // block_bytes
        if num_device_blocks < 1:
            raise SettingsInvalid(f"--kv-memory is {budget} bytes, but one block takes {block_bytes}")
    if settings.num_host_blocks is not None:
        return num_device_blocks, settings.num_host_blocks
    half = num_device_blocks // 2
    pinned = min(host_bytes, _MOST_DEFAULT_PINNED_BYTES) // block_bytes
    return num_device_blocks, half if device_kv_bytes is None else min(half, pinned)


@contextmanager
def _stage(name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    logger.info("%s in %.2f s", name, time.perf_counter() - started)
