"""The scheduler's flags: their meaning, units and variables."""

from pathlib import Path
from typing import Annotated

import typer

from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode
from scheduler.settings import LogLevel

Kvmanager = Annotated[str, typer.Option(envvar="OCTAVO_KVMANAGER", help="gRPC target of the kvmanager.")]
Worker = Annotated[str, typer.Option(envvar="OCTAVO_WORKERS", help="gRPC target of the gpuworker.")]
Model = Annotated[Path, typer.Option(envvar="OCTAVO_MODEL", help="A .gguf file or a Hugging Face folder.")]
Host = Annotated[str, typer.Option(envvar="OCTAVO_HOST", help="Address to listen on.")]
Port = Annotated[int, typer.Option(envvar="OCTAVO_PORT", help="0 takes a free one.")]
ServedModelName = Annotated[
    str | None,
    typer.Option(envvar="OCTAVO_SERVED_MODEL_NAME", help="Name in requests. Default: from the model's path."),
]
MaxNumBatchedTokens = Annotated[
    int, typer.Option(envvar="OCTAVO_MAX_NUM_BATCHED_TOKENS", help="Tokens computed in one step.")
]
MaxNumSeqs = Annotated[int, typer.Option(envvar="OCTAVO_MAX_NUM_SEQS", help="Sequences that run at once.")]
PreemptionModeFlag = Annotated[
    PreemptionMode,
    typer.Option(
        envvar="OCTAVO_PREEMPTION_MODE",
        help="How a request gives its KV memory back; auto swaps requests of several sequences.",
    ),
]
Overlap = Annotated[
    bool,
    typer.Option(
        envvar="OCTAVO_OVERLAP",
        help="Prepare each step while the one before computes; without it the worker waits in between.",
    ),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        envvar="OCTAVO_MAX_MODEL_LEN",
        help="Tokens of a sequence. Default: the worker's limit.",
    ),
]
MaxWaiting = Annotated[
    int,
    typer.Option(
        envvar="OCTAVO_MAX_WAITING", help="Requests, each choice counted, that may wait before others get 429."
    ),
]
MaxWaitingTokens = Annotated[
    int | None,
    typer.Option(
        envvar="OCTAVO_MAX_WAITING_TOKENS",
        help="Tokens of prompts that may wait before other requests get 429. Default: no limit.",
        show_default=False,
    ),
]
QueueTimeout = Annotated[
    float,
    typer.Option(
        envvar="OCTAVO_QUEUE_TIMEOUT",
        help="Seconds to the first token after which a request gets 504; 0 lets it wait.",
    ),
]
SchedulingPolicyFlag = Annotated[
    SchedulingPolicy,
    typer.Option(
        envvar="OCTAVO_SCHEDULING_POLICY",
        help="fcfs serves requests as they arrive; priority those of the smallest `priority` first.",
    ),
]
ApiKeys = Annotated[
    str | None,
    typer.Option(
        envvar="OCTAVO_API_KEYS",
        help="File or Redis (redis://…) of `octavo keys create`. Default: inference needs no key.",
        show_default=False,
    ),
]
MaxBodyBytes = Annotated[int, typer.Option(envvar="OCTAVO_MAX_BODY_BYTES", help="Largest body of a request, in bytes.")]
DrainTimeout = Annotated[
    float,
    typer.Option(envvar="OCTAVO_DRAIN_TIMEOUT", help="Seconds for requests after SIGTERM."),
]
AdminKey = Annotated[
    str | None,
    typer.Option(
        envvar="OCTAVO_ADMIN_KEY",
        help="Key of /admin/v1; better given as a variable. Default: administration is switched off.",
        show_default=False,
    ),
]
LogLevelFlag = Annotated[LogLevel, typer.Option(envvar="OCTAVO_LOG_LEVEL")]
