"""What the scheduler was asked for, checked once."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode
from scheduler.errors import InvalidConfiguration

RANGES: Mapping[str, tuple[int, int]] = {
    "port": (0, 65535),
    "max_num_batched_tokens": (1, 2**20),
    "max_num_seqs": (1, 2**16),
    "max_model_len": (1, 2**31 - 1),
    "max_waiting": (1, 2**31 - 1),
    "max_waiting_tokens": (1, 2**31 - 1),
    "queue_timeout": (0, 86_400),
    "max_body_bytes": (1024, 2**31 - 1),
    "drain_timeout": (0, 86_400),
}
MIN_KEY_CHARS, MAX_KEY_CHARS = 16, 512
ADDRESS = re.compile(r"unix:/.+|[^:/\s]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Raises ``InvalidConfiguration`` that names the flag, its value and what is accepted."""

    host: str
    port: int  # 0 takes a free one
    kvmanager: str  # gRPC target
    worker: str  # gRPC target
    model: Path
    served_model_name: str
    max_num_batched_tokens: int
    max_num_seqs: int
    preemption_mode: PreemptionMode
    max_model_len: int | None  # tokens; None: the worker's
    scheduling_policy: SchedulingPolicy
    max_waiting: int  # sequences
    max_waiting_tokens: int | None  # None: no limit
    queue_timeout: float  # seconds; 0: none
    api_keys: Path | None  # None: inference is open
    max_body_bytes: int
    drain_timeout: float  # seconds
    log_level: LogLevel
    admin_key: str | None = field(default=None, repr=False)  # None: administration is switched off

    def __post_init__(self) -> None:
        """Checks each value, then what spans more than one flag."""
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidConfiguration(f"{_flag(name)} is {value}, but must be from {low} to {high}")
        for flag, address in (("--kvmanager", self.kvmanager), ("--worker", self.worker)):
            if "," in address:
                raise InvalidConfiguration(f"{flag} is {address!r}, but one address is supported")
            if not ADDRESS.fullmatch(address):
                raise InvalidConfiguration(f"{flag} is {address!r}, but must be unix:/path or host:port")
        if self.admin_key is not None and not MIN_KEY_CHARS <= len(self.admin_key) <= MAX_KEY_CHARS:
            raise InvalidConfiguration(
                f"--admin-key has {len(self.admin_key)} characters, but must have {MIN_KEY_CHARS} to {MAX_KEY_CHARS}"
            )
        if not self.served_model_name.strip():
            raise InvalidConfiguration(f"--served-model-name is {self.served_model_name!r}, but must not be blank")
        if self.max_num_seqs > self.max_num_batched_tokens:
            raise InvalidConfiguration(
                f"--max-num-seqs is {self.max_num_seqs}, but must be at most --max-num-batched-tokens, "
                f"which is {self.max_num_batched_tokens}"
            )


def command(run: Callable[[Settings], int]) -> typer.Typer:
    """The command line that calls ``run`` and exits with what it returns; 2 for settings that are refused."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.command(help="Serves the REST API and schedules requests on a gpuworker and a kvmanager.")
    def scheduler(  # noqa: PLR0913 - one parameter per flag
        *,
        kvmanager: Annotated[str, typer.Option(envvar="OCTAVO_KVMANAGER", help="gRPC target of the kvmanager.")],
        worker: Annotated[str, typer.Option(envvar="OCTAVO_WORKERS", help="gRPC target of the gpuworker.")],
        model: Annotated[Path, typer.Option(envvar="OCTAVO_MODEL", help="A .gguf file or a Hugging Face folder.")],
        host: Annotated[str, typer.Option(envvar="OCTAVO_HOST", help="Address to listen on.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(envvar="OCTAVO_PORT", help="0 takes a free one.")] = 8000,
        served_model_name: Annotated[
            str | None,
            typer.Option(envvar="OCTAVO_SERVED_MODEL_NAME", help="Name in requests. Default: from the model's path."),
        ] = None,
        max_num_batched_tokens: Annotated[
            int, typer.Option(envvar="OCTAVO_MAX_NUM_BATCHED_TOKENS", help="Tokens computed in one step.")
        ] = 512,
        max_num_seqs: Annotated[
            int, typer.Option(envvar="OCTAVO_MAX_NUM_SEQS", help="Sequences that run at once.")
        ] = 64,
        preemption_mode: Annotated[
            PreemptionMode,
            typer.Option(
                envvar="OCTAVO_PREEMPTION_MODE",
                help="How a request gives its KV memory back; auto swaps requests of several sequences.",
            ),
        ] = PreemptionMode.AUTO,
        max_model_len: Annotated[
            int | None,
            typer.Option(
                envvar="OCTAVO_MAX_MODEL_LEN",
                help="Tokens of a sequence. Default: the worker's limit.",
            ),
        ] = None,
        max_waiting: Annotated[
            int,
            typer.Option(
                envvar="OCTAVO_MAX_WAITING", help="Requests, each choice counted, that may wait before others get 429."
            ),
        ] = 1024,
        max_waiting_tokens: Annotated[
            int | None,
            typer.Option(
                envvar="OCTAVO_MAX_WAITING_TOKENS",
                help="Tokens of prompts that may wait before other requests get 429. Default: no limit.",
                show_default=False,
            ),
        ] = None,
        queue_timeout: Annotated[
            float,
            typer.Option(
                envvar="OCTAVO_QUEUE_TIMEOUT",
                help="Seconds to the first token after which a request gets 504; 0 lets it wait.",
            ),
        ] = 0.0,
        scheduling_policy: Annotated[
            SchedulingPolicy,
            typer.Option(
                envvar="OCTAVO_SCHEDULING_POLICY",
                help="fcfs serves requests as they arrive; priority those of the smallest `priority` first.",
            ),
        ] = SchedulingPolicy.FCFS,
        api_keys: Annotated[
            Path | None,
            typer.Option(
                envvar="OCTAVO_API_KEYS",
                help="File of `octavo keys create`. Default: inference needs no key.",
                show_default=False,
            ),
        ] = None,
        max_body_bytes: Annotated[
            int, typer.Option(envvar="OCTAVO_MAX_BODY_BYTES", help="Largest body of a request, in bytes.")
        ] = 8 * 1024 * 1024,
        drain_timeout: Annotated[
            float,
            typer.Option(envvar="OCTAVO_DRAIN_TIMEOUT", help="Seconds for requests after SIGTERM."),
        ] = 30.0,
        admin_key: Annotated[
            str | None,
            typer.Option(
                envvar="OCTAVO_ADMIN_KEY",
                help="Key of /admin/v1; better given as a variable. Default: administration is switched off.",
                show_default=False,
            ),
        ] = None,
        log_level: Annotated[LogLevel, typer.Option(envvar="OCTAVO_LOG_LEVEL")] = LogLevel.INFO,
    ) -> None:
        try:
            settings = Settings(
                host=host,
                port=port,
                kvmanager=kvmanager,
                worker=worker,
                model=model,
                served_model_name=default_model_name(model) if served_model_name is None else served_model_name,
                max_num_batched_tokens=max_num_batched_tokens,
                max_num_seqs=max_num_seqs,
                preemption_mode=preemption_mode,
                max_model_len=max_model_len,
                scheduling_policy=scheduling_policy,
                max_waiting=max_waiting,
                max_waiting_tokens=max_waiting_tokens,
                queue_timeout=queue_timeout,
                api_keys=api_keys,
                max_body_bytes=max_body_bytes,
                drain_timeout=drain_timeout,
                log_level=log_level,
                admin_key=admin_key or None,
            )
            code = run(settings)
        except InvalidConfiguration as error:
            typer.echo(f"error: {error}", err=True)
            code = 2
        raise typer.Exit(code)

    return app


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def default_model_name(model: Path) -> str:
    """A file's name without its ending, or a folder's name."""
    return model.stem if model.suffix == ".gguf" else model.resolve().name
