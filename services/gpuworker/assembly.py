"""From settings to an engine: weights, kernels, pools. The slow part of a start, with the time of each stage."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gpuworker.core.state import Limits
from gpuworker.engine import Engine, Identity
from gpuworker.errors import SettingsInvalid
from gpuworker.executor import Executor
from gpuworker.kernels import load_ops
from gpuworker.machine import available_memory_bytes, has_fast_bfloat16, num_cores
from gpuworker.model.llama import Llama, cache_shape
from gpuworker.settings import Dtype, Settings
from gpuworker.weights.loading import content_digest, fingerprint, open_weights

logger = logging.getLogger(__name__)

_MOST_DEFAULT_KV_BYTES = 2**30


def assemble(settings: Settings) -> Engine:
    """An engine that is ready to compute. Call it in the thread that will: thread teams belong to their caller."""
    torch.set_num_threads(settings.threads or num_cores())
    dtype = choose_dtype(settings.dtype)
    ops = load_ops(settings.kernels.value)
    with _stage("weights opened"):
        source = open_weights(settings.model)
    max_model_len = choose_max_model_len(settings.max_model_len, source.config.max_position)
    with _stage("fingerprint taken"):
        model_fingerprint = fingerprint(source, content_digest(source), str(dtype))
    with _stage("weights loaded"):
        model = Llama(source, dtype, max_model_len)
    block_bytes = cache_shape(source.config, 1, settings.block_size).block_bytes(dtype)
    num_device_blocks, num_host_blocks = choose_num_blocks(settings, block_bytes)
    limits = Limits(settings.block_size, num_device_blocks, num_host_blocks, max_model_len, source.config.vocab_size)
    with _stage("KV pools allocated"):
        device_pool, host_pool = (
            ops.allocate(cache_shape(source.config, num_blocks, settings.block_size), dtype)
            for num_blocks in (num_device_blocks, num_host_blocks)
        )
    dtype_name = str(dtype).removeprefix("torch.")
    identity = Identity(settings.worker_id, source.name, model_fingerprint, dtype_name, ops.name, block_bytes, limits)
    logger.info("%s in %s with kernels %s, %s", source.name, dtype_name, ops.name, limits)
    return Engine(identity, Executor(model, ops, device_pool, host_pool))


def choose_dtype(asked: Dtype) -> torch.dtype:
    """The type of weights and KV."""
    if asked is Dtype.AUTO:
        asked = Dtype.BFLOAT16 if has_fast_bfloat16() else Dtype.FLOAT32
    return torch.bfloat16 if asked is Dtype.BFLOAT16 else torch.float32


def choose_max_model_len(asked: int | None, max_position: int) -> int:
    """The longest sequence in tokens; the model's own limit where none is asked for."""
    if asked is not None and asked > max_position:
        raise SettingsInvalid(f"--max-model-len is {asked}, but the model has {max_position} positions")
    return asked or max_position


def choose_num_blocks(settings: Settings, block_bytes: int) -> tuple[int, int]:
    """Blocks of the device and of the host pool.

    Without a number or a budget, the device pool takes a quarter of the memory that is available, 1 GiB at most; the
    host pool has half as many blocks, whose memory is committed when the first one is swapped.
    """
    num_device_blocks = settings.num_device_blocks
    if num_device_blocks is None:
        budget = settings.kv_memory_bytes or min(available_memory_bytes() // 4, _MOST_DEFAULT_KV_BYTES)
        num_device_blocks = budget // block_bytes
        if num_device_blocks < 1:
            raise SettingsInvalid(f"--kv-memory is {budget} bytes, but one block takes {block_bytes}")
    host = settings.num_host_blocks
    return num_device_blocks, num_device_blocks // 2 if host is None else host


@contextmanager
def _stage(name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    logger.info("%s in %.2f s", name, time.perf_counter() - started)
