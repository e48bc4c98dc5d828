"""The composition root: flags and variables to a serving worker."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import grpc.aio
import typer
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from gpuworker.assembly import assemble
from gpuworker.errors import KernelError, SettingsInvalid, WorkerError
from gpuworker.servicer import Servicer
from gpuworker.settings import Activations, Dtype, Kernels, LogLevel, Settings, StepKind, Weights, parse_bytes
from gpuworker.v1 import gpuworker_pb2, gpuworker_pb2_grpc

logger = logging.getLogger(__name__)

_GRACE_S = 10.0  # for the step in hand when a shutdown is asked for
_SERVICE_NAME = gpuworker_pb2.DESCRIPTOR.services_by_name["GPUWorker"].full_name
_SERVER_OPTIONS = (("grpc.max_receive_message_length", 64 * 2**20), ("grpc.so_reuseport", 0))


def command(run: Callable[[Settings], None]) -> typer.Typer:
    """The command line that calls ``run``; 2 is the exit code for settings that are refused, 1 for other errors."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def main(  # noqa: PLR0913 (one parameter per flag)
        *,
        listen: Annotated[str, typer.Option(envvar="OCTAVO_WORKER_LISTEN", help="unix:/path.sock or host:port")],
        model: Annotated[Path, typer.Option(envvar="OCTAVO_MODEL", help="A .gguf file or a Hugging Face folder")],
        block_size: Annotated[int, typer.Option(envvar="OCTAVO_BLOCK_SIZE", help="Tokens per block")] = 16,
        num_device_blocks: Annotated[
            int | None, typer.Option(envvar="OCTAVO_NUM_DEVICE_BLOCKS", help="Overrides --kv-memory")
        ] = None,
        num_host_blocks: Annotated[
            int | None,
            typer.Option(envvar="OCTAVO_NUM_HOST_BLOCKS", help="Blocks for swapping [default: half as many]"),
        ] = None,
        kv_memory: Annotated[
            str | None,
            typer.Option(
                envvar="OCTAVO_KV_MEMORY", help="Such as 1GiB [default: a quarter of what is free, 1GiB at most]"
            ),
        ] = None,
        max_model_len: Annotated[
            int | None, typer.Option(envvar="OCTAVO_MAX_MODEL_LEN", help="Tokens of the longest sequence")
        ] = None,
        dtype: Annotated[
            Dtype, typer.Option(envvar="OCTAVO_DTYPE", help="Of KV and products; auto: bfloat16 where it is fast")
        ] = Dtype.AUTO,
        weights: Annotated[
            Weights, typer.Option(envvar="OCTAVO_WEIGHTS", help="auto: packed if the file is quantized, else the dtype")
        ] = Weights.AUTO,
        activations: Annotated[
            Activations,
            typer.Option(
                envvar="OCTAVO_ACTIVATIONS", help="int8 needs quantized weights: faster, rounded; auto: float"
            ),
        ] = Activations.AUTO,
        step: Annotated[
            StepKind, typer.Option(envvar="OCTAVO_STEP", help="auto: native with the cpu kernels, where it can")
        ] = StepKind.AUTO,
        kernels: Annotated[
            Kernels, typer.Option(envvar="OCTAVO_KERNELS", help="auto: cuda with a device and `make cuda`, else cpu")
        ] = Kernels.AUTO,
        threads: Annotated[int | None, typer.Option(envvar="OCTAVO_THREADS", help="[default: all cores]")] = None,
        worker_id: Annotated[
            str | None, typer.Option(envvar="OCTAVO_WORKER_ID", help="Names the pool [default: the host's name]")
        ] = None,
        log_level: Annotated[LogLevel, typer.Option(envvar="OCTAVO_LOG_LEVEL")] = LogLevel.INFO,
    ) -> None:
        """Holds a model and its paged KV memory, and computes steps."""
        logging.basicConfig(level=log_level.value.upper(), format="%(asctime)s gpuworker %(levelname)s %(message)s")
        try:
            settings = Settings(
                listen=listen,
                model=model,
                block_size=block_size,
                num_device_blocks=num_device_blocks,
                num_host_blocks=num_host_blocks,
                kv_memory_bytes=None if kv_memory is None else parse_bytes(kv_memory),
                max_model_len=max_model_len,
                dtype=dtype,
                kernels=kernels,
                weights=weights,
                activations=activations,
                step=step,
                threads=threads,
                worker_id=socket.gethostname() if worker_id is None else worker_id,
            )
            run(settings)
        except (WorkerError, KernelError) as error:
            logger.critical("%s", error)
            raise typer.Exit(2 if isinstance(error, SettingsInvalid) else 1) from error

    return app


async def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT; then answers the step in hand and returns."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute") as compute:
        engine = await loop.run_in_executor(compute, assemble, settings)
        if stop.is_set():
            return
        server, servicer = grpc.aio.server(options=_SERVER_OPTIONS), Servicer(engine, compute)
        gpuworker_pb2_grpc.add_GPUWorkerServicer_to_server(servicer, server)
        health_servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
        try:
            server.add_insecure_port(settings.listen)
        except RuntimeError as error:
            raise SettingsInvalid(f"--listen is {settings.listen}, which cannot be bound: {error}") from error
        await server.start()
        for name in (health.OVERALL_HEALTH, _SERVICE_NAME):
            await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        logger.info("listening on %s", settings.listen)
        await stop.wait()
        logger.info("shutting down")
        await health_servicer.enter_graceful_shutdown()
        servicer.drain()
        await server.stop(_GRACE_S)


def _run(settings: Settings) -> None:
    asyncio.run(serve(settings))


app = command(_run)
