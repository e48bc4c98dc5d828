"""The options of `octavo up`: their meaning, units, limits and variables."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from octavo.data_folder import default_data_dir
from octavo.settings import Activations, Dtype, Kernels, PreemptionMode, SchedulingPolicy, StepKind, Weights

API, MODEL, MEMORY, BATCHING, STORAGE = "API", "Model and kernels", "KV memory", "Batching", "Storage"
KV_MEMORY = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?)?B?", re.IGNORECASE)


def within(low: float, high: float | None = None) -> Callable[[float | None], float | None]:
    """A check that names value and limit, as typer's own does not."""

    def check(value: float | None) -> float | None:
        if isinstance(value, float) and not math.isfinite(value):
            raise typer.BadParameter(f"{value} is no finite number")
        if value is not None and value < low:
            raise typer.BadParameter(f"{value} is too small; the least is {low}")
        if value is not None and high is not None and value > high:
            raise typer.BadParameter(f"{value} is too large; the most is {high}")
        return value

    return check


def _kv_memory(text: str) -> str:
    if not KV_MEMORY.fullmatch(text.strip()):
        raise typer.BadParameter(f"{text!r} is not a size; write bytes or a unit, as in 512MiB or 2GiB")
    return text


Host = Annotated[str, typer.Option(help="Address the API listens on.", envvar="OCTAVO_HOST", rich_help_panel=API)]
Port = Annotated[
    int,
    typer.Option(
        callback=within(0, 65535),
        help="Port of the API; 0 takes a free one.",
        envvar="OCTAVO_PORT",
        rich_help_panel=API,
    ),
]
ServedModelName = Annotated[
    str | None,
    typer.Option(
        help="Name of the model in requests. Default: the catalogue's, or the file's.",
        envvar="OCTAVO_SERVED_MODEL_NAME",
        rich_help_panel=API,
        show_default=False,
    ),
]
DrainTimeout = Annotated[
    float,
    typer.Option(
        callback=within(0),
        help="Seconds that running requests get to finish after Ctrl-C or SIGTERM.",
        envvar="OCTAVO_DRAIN_TIMEOUT",
        rich_help_panel=API,
    ),
]
ApiKeys = Annotated[
    str | None,
    typer.Option(
        help="File or Redis (redis://…) of `octavo keys create`. Default: inference needs no key.",
        envvar="OCTAVO_API_KEYS",
        rich_help_panel=API,
        show_default=False,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        help="Key to call with, where inference needs one; better given as a variable.",
        envvar="OCTAVO_API_KEY",
        show_default=False,
    ),
]
Model = Annotated[
    str,
    typer.Option(
        help="A name from `octavo model list`, a .gguf file, or a Hugging Face folder.",
        envvar="OCTAVO_MODEL",
        rich_help_panel=MODEL,
    ),
]
DtypeOption = Annotated[
    Dtype,
    typer.Option(
        help="Number format of KV and products; auto is bfloat16, or float32 where torch would multiply it slowly.",
        envvar="OCTAVO_DTYPE",
        rich_help_panel=MODEL,
    ),
]
WeightsOption = Annotated[
    Weights,
    typer.Option(
        help="How weights are kept: packed in the file's own blocks, or converted; auto packs a quantized file.",
        envvar="OCTAVO_WEIGHTS",
        rich_help_panel=MODEL,
    ),
]
ActivationsOption = Annotated[
    Activations,
    typer.Option(
        help="What native steps multiply with quantized weights: int8, faster and rounded, or float in the dtype.",
        envvar="OCTAVO_ACTIVATIONS",
        rich_help_panel=MODEL,
    ),
]
StepOption = Annotated[
    StepKind,
    typer.Option(
        help="Who computes a step on a CPU: one native call, or a torch program; auto is native where it can.",
        envvar="OCTAVO_STEP",
        rich_help_panel=MODEL,
    ),
]
KernelsOption = Annotated[
    Kernels,
    typer.Option(
        help="Implementation of attention and block copies; auto takes cuda with a device and `make cuda`, else cpu.",
        envvar="OCTAVO_KERNELS",
        rich_help_panel=MODEL,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        callback=within(1),
        help="Threads that compute. Default: one per core.",
        envvar="OCTAVO_THREADS",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
BlockSize = Annotated[
    int,
    typer.Option(callback=within(1), help="Tokens per block.", envvar="OCTAVO_BLOCK_SIZE", rich_help_panel=MEMORY),
]
KvMemory = Annotated[
    str,
    typer.Option(
        help="Memory for KV blocks, in bytes or with a unit (512MiB, 2GiB).",
        envvar="OCTAVO_KV_MEMORY",
        callback=_kv_memory,
        rich_help_panel=MEMORY,
    ),
]
NumDeviceBlocks = Annotated[
    int | None,
    typer.Option(
        callback=within(1),
        help="Blocks in the device pool; overrides --kv-memory. Default: as many as --kv-memory holds.",
        envvar="OCTAVO_NUM_DEVICE_BLOCKS",
        rich_help_panel=MEMORY,
        show_default=False,
    ),
]
NumHostBlocks = Annotated[
    int | None,
    typer.Option(
        callback=within(0),
        help="Blocks in the host pool, which swapping uses. Default: the worker's.",
        envvar="OCTAVO_NUM_HOST_BLOCKS",
        rich_help_panel=MEMORY,
        show_default=False,
    ),
]
MaxNumBatchedTokens = Annotated[
    int,
    typer.Option(
        callback=within(1),
        help="Tokens computed in one step, at most.",
        envvar="OCTAVO_MAX_NUM_BATCHED_TOKENS",
        rich_help_panel=BATCHING,
    ),
]
MaxNumSeqs = Annotated[
    int,
    typer.Option(
        callback=within(1),
        help="Sequences that run at once, at most.",
        envvar="OCTAVO_MAX_NUM_SEQS",
        rich_help_panel=BATCHING,
    ),
]
PreemptionModeOption = Annotated[
    PreemptionMode,
    typer.Option(
        help="How a request gives its blocks back when others need them; auto swaps those of several sequences.",
        envvar="OCTAVO_PREEMPTION_MODE",
        rich_help_panel=MEMORY,
    ),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        callback=within(1),
        help="Tokens of prompt and output together, at most. Default: the model's context length.",
        envvar="OCTAVO_MAX_MODEL_LEN",
        rich_help_panel=BATCHING,
        show_default=False,
    ),
]
SchedulingPolicyOption = Annotated[
    SchedulingPolicy,
    typer.Option(
        help="fcfs serves requests as they arrive; priority those of the smallest `priority` first.",
        envvar="OCTAVO_SCHEDULING_POLICY",
        rich_help_panel=BATCHING,
    ),
]
MaxWaiting = Annotated[
    int | None,
    typer.Option(
        callback=within(1),
        help="Requests, each choice counted, that may wait before others get 429. Default: the scheduler's.",
        envvar="OCTAVO_MAX_WAITING",
        rich_help_panel=BATCHING,
        show_default=False,
    ),
]
MaxWaitingTokens = Annotated[
    int | None,
    typer.Option(
        callback=within(1),
        help="Tokens of prompts that may wait before other requests get 429. Default: no limit.",
        envvar="OCTAVO_MAX_WAITING_TOKENS",
        rich_help_panel=BATCHING,
        show_default=False,
    ),
]
QueueTimeout = Annotated[
    float | None,
    typer.Option(
        callback=within(0),
        help="Seconds to the first token after which a request gets 504. Default: none.",
        envvar="OCTAVO_QUEUE_TIMEOUT",
        rich_help_panel=BATCHING,
        show_default=False,
    ),
]
InProcess = Annotated[
    bool,
    typer.Option(
        "--in-process",
        help="Run the three services as one process, to compare: it cannot lose one and keep the others.",
        envvar="OCTAVO_IN_PROCESS",
        rich_help_panel=STORAGE,
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        help="Folder of the journal, logs and sockets. Default: $XDG_DATA_HOME/octavo or ~/.local/share/octavo.",
        envvar="OCTAVO_DATA_DIR",
        default_factory=default_data_dir,
        show_default=False,
        rich_help_panel=STORAGE,
    ),
]
Redis = Annotated[
    str | None,
    typer.Option(
        help="URL of a running Redis or Valkey. Default: one is started in the data folder.",
        envvar="OCTAVO_REDIS",
        rich_help_panel=STORAGE,
        show_default=False,
    ),
]
