"""The worker's settings, checked once."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gpuworker.errors import SettingsInvalid

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


class Dtype(StrEnum):
    """Type of weights and KV; ``auto`` is bfloat16 on a CUDA device and where the CPU multiplies it itself."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"  # not with the cpu kernels


class Kernels(StrEnum):
    """Which implementation of ``KernelOps``; ``auto`` is ``cuda`` where it can be used, else ``cpu``."""

    AUTO = "auto"
    REFERENCE = "reference"
    CPU = "cpu"
    CUDA = "cuda"


class Weights(StrEnum):
    """In what the weights are kept; ``auto`` is ``packed`` for a quantized file, else the ``dtype``."""

    AUTO = "auto"
    PACKED = "packed"  # each tensor in the blocks that its file has
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    Q8_0 = "q8_0"  # quantized when they are loaded


class Activations(StrEnum):
    """In what native steps multiply activations; ``auto`` is ``float``."""

    AUTO = "auto"
    FLOAT = "float"  # in the dtype
    INT8 = "int8"  # each 32 of them rounded to bytes with a scale


class StepKind(StrEnum):
    """Who computes a step; ``auto`` is ``native`` with the cpu kernels, where they can compute the model."""

    AUTO = "auto"
    NATIVE = "native"  # one call of the C++ library
    TORCH = "torch"  # a torch program that calls the kernels


class LogLevel(StrEnum):
    """What is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Settings:
    """See ``python -m gpuworker --help``. Raises ``SettingsInvalid`` with the flag, the value and the limit.

    ``None`` means: derived from the model and the machine.
    """

    listen: str
    model: Path
    worker_id: str  # names the pool
    block_size: int = 16  # tokens
    num_device_blocks: int | None = None
    num_host_blocks: int | None = None
    kv_memory_bytes: int | None = None
    max_model_len: int | None = None  # tokens
    dtype: Dtype = Dtype.AUTO
    kernels: Kernels = Kernels.AUTO
    weights: Weights = Weights.AUTO
    activations: Activations = Activations.AUTO
    step: StepKind = StepKind.AUTO
    threads: int | None = None

    def __post_init__(self) -> None:
        if not self.listen:
            raise SettingsInvalid("--listen is empty; expected unix:/path.sock or host:port")
        for flag, value, least in (
            ("--block-size", self.block_size, 1),
            ("--num-device-blocks", self.num_device_blocks, 1),
            ("--num-host-blocks", self.num_host_blocks, 0),
            ("--kv-memory", self.kv_memory_bytes, 1),
            ("--max-model-len", self.max_model_len, 1),
            ("--threads", self.threads, 1),
        ):
            if value is not None and value < least:
                raise SettingsInvalid(f"{flag} is {value}, but must be at least {least}")
        if not self.worker_id:
            raise SettingsInvalid("--worker-id is empty; it names the pool of this worker")


def parse_bytes(text: str) -> int:
    """Bytes in ``text``: 1GiB, 512MiB, 2GB, 1073741824. Raises ``SettingsInvalid``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS:
        raise SettingsInvalid(f"--kv-memory is {text!r}; expected a number and a unit, such as 1GiB, 512MiB or 2GB")
    return int(float(match[1]) * _UNITS[match[2].upper()])
