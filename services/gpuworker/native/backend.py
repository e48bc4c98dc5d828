"""Steps as one call of the C++ library."""

from gpuworker.backend import Backend
from gpuworker.machine import num_cores
from gpuworker.model.config import ModelConfig
from gpuworker.native.executor import NativeExecutor
from gpuworker.native.layout import formats
from gpuworker.native.library import StepLibrary
from gpuworker.native.model import HEAD_SIZE_MULTIPLE, NativeModel, formats_of
from gpuworker.native.packing import load_packed
from gpuworker.native.pool import Pool, block_bytes
from gpuworker.native.precision import choose_precision
from gpuworker.native.structs import PHASES
from gpuworker.settings import Dtype, Settings
from gpuworker.weights.source import WeightSource


def can_compute(config: ModelConfig) -> bool:
    """Whether the library has kernels for the sizes of the model."""
    return config.head_size % HEAD_SIZE_MULTIPLE == 0 and config.hidden_size % 8 == config.intermediate_size % 8 == 0


def native_backend(settings: Settings, source: WeightSource, max_model_len: int) -> Backend:
    """The weights of ``source``, packed. Raises ``WorkerError`` or ``KernelError``."""
    library = StepLibrary()
    dtype = Dtype.BFLOAT16 if settings.dtype is Dtype.AUTO else settings.dtype
    weights = load_packed(source, settings.weights, dtype, library)
    precision = choose_precision(settings.activations, set(formats(weights.places)), dtype)
    model = NativeModel(
        source.config,
        weights,
        library,
        precision=precision,
        num_positions=max_model_len,
        num_threads=settings.threads or num_cores(),
    )

    def make_executor(num_device_blocks: int, num_host_blocks: int) -> NativeExecutor:
        device_pool, host_pool = (
            Pool.allocate(source.config, num_blocks, settings.block_size, dtype)
            for num_blocks in (num_device_blocks, num_host_blocks)
        )
        return NativeExecutor(library, model, device_pool, host_pool)

    kept, multiplied = formats_of(weights.places), f"{precision.name.lower()} products"
    return Backend(
        dtype=dtype.value,
        kernels=f"cpu[{library.isa}, native, {kept}, {multiplied}]",
        arithmetic=(dtype.value, "native", library.isa, kept, multiplied),
        content_digest=weights.content_digest,
        block_bytes=block_bytes(source.config, settings.block_size, dtype),
        make_executor=make_executor,
        phase_names=PHASES,
    )
