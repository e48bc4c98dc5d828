"""What `octavo up` was asked for, checked once."""

import socket
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from octavo.errors import AddressInUse


class Dtype(StrEnum):
    """Number format of KV and products."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Kernels(StrEnum):
    """Implementation of the attention and memory kernels."""

    AUTO = "auto"
    REFERENCE = "reference"
    CPU = "cpu"
    CUDA = "cuda"


class Weights(StrEnum):
    """In what the weights are kept."""

    AUTO = "auto"
    PACKED = "packed"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    Q8_0 = "q8_0"


class Activations(StrEnum):
    """In what native steps multiply activations."""

    AUTO = "auto"
    FLOAT = "float"
    INT8 = "int8"


class StepKind(StrEnum):
    """Who computes a step on a CPU."""

    AUTO = "auto"
    NATIVE = "native"
    TORCH = "torch"


class PreemptionMode(StrEnum):
    """How a request gives its KV memory back when others need it."""

    AUTO = "auto"
    SWAP = "swap"
    RECOMPUTE = "recompute"


class SchedulingPolicy(StrEnum):
    """Who is served before whom."""

    FCFS = "fcfs"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """A local cluster. ``None`` leaves the choice to the service that needs the value."""

    host: str
    port: int  # a free one is chosen for 0
    data_dir: Path
    model: str  # catalogue name or path
    served_model_name: str | None
    redis: str | None  # URL; None: start one
    block_size: int  # tokens
    num_device_blocks: int | None
    num_host_blocks: int | None
    kv_memory: str  # bytes, with or without a unit
    max_num_batched_tokens: int
    max_num_seqs: int
    preemption_mode: PreemptionMode
    max_model_len: int | None  # tokens
    scheduling_policy: SchedulingPolicy = SchedulingPolicy.FCFS
    max_waiting: int | None = None  # sequences
    max_waiting_tokens: int | None = None
    queue_timeout_s: float | None = None
    api_keys: str | None = None  # file or URL of Redis; None: inference needs no key
    threads: int | None
    dtype: Dtype
    kernels: Kernels
    weights: Weights = Weights.AUTO
    activations: Activations = Activations.AUTO
    step: StepKind = StepKind.AUTO
    drain_timeout_s: float
    in_process: bool = False  # one process instead of three services, for comparison


def claim_port(host: str, port: int) -> int:
    """The port that the API can listen on: ``port``, or a free one for 0. Raises ``AddressInUse``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            chosen: int = probe.getsockname()[1]
    except OSError as fault:
        raise AddressInUse(
            f"The API cannot listen on {host}:{port}: {fault.strerror or fault}. "
            "Choose another with --port (0 takes any free one) or --host."
        ) from fault
    return chosen
