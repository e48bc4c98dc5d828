"""`octavo up`: a local cluster in the foreground."""

import asyncio
import dataclasses
import signal
import time
from collections.abc import Coroutine
from typing import Annotated

import typer

from octavo import catalog
from octavo.cli import options
from octavo.cli.complete import show_completion
from octavo.cli.terminal import err, errors_shown, out
from octavo.completion import Prompt
from octavo.concurrency import together
from octavo.data_folder import DataFolder
from octavo.progress import Stages
from octavo.services import local_cluster
from octavo.settings import (
    Activations,
    ClusterSettings,
    Dtype,
    Kernels,
    PreemptionMode,
    SchedulingPolicy,
    StepKind,
    Weights,
    claim_port,
)
from octavo.supervisor import Supervisor

EXAMPLE_TOKENS = 32

Example = Annotated[
    str | None,
    typer.Option(
        help="Complete this prompt to the end of its line when the cluster is ready, and show the answer.",
        show_default=False,
    ),
]


def up(  # noqa: PLR0913 - one parameter per flag
    *,
    data_dir: options.DataDir,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8000,
    served_model_name: options.ServedModelName = None,
    api_keys: options.ApiKeys = None,
    drain_timeout: options.DrainTimeout = 30.0,
    model: options.Model = catalog.DEFAULT_MODEL,
    dtype: options.DtypeOption = Dtype.AUTO,
    kernels: options.KernelsOption = Kernels.AUTO,
    weights: options.WeightsOption = Weights.AUTO,
    activations: options.ActivationsOption = Activations.AUTO,
    step: options.StepOption = StepKind.AUTO,
    threads: options.Threads = None,
    block_size: options.BlockSize = 16,
    kv_memory: options.KvMemory = "1GiB",
    num_device_blocks: options.NumDeviceBlocks = None,
    num_host_blocks: options.NumHostBlocks = None,
    preemption_mode: options.PreemptionModeOption = PreemptionMode.AUTO,
    max_num_batched_tokens: options.MaxNumBatchedTokens = 512,
    max_num_seqs: options.MaxNumSeqs = 64,
    max_model_len: options.MaxModelLen = None,
    scheduling_policy: options.SchedulingPolicyOption = SchedulingPolicy.FCFS,
    max_waiting: options.MaxWaiting = None,
    max_waiting_tokens: options.MaxWaitingTokens = None,
    queue_timeout: options.QueueTimeout = None,
    redis: options.Redis = None,
    in_process: options.InProcess = False,
    example: Example = None,
) -> None:
    """Start a cluster on this machine and keep it running until Ctrl-C, SIGTERM or `octavo down`."""
    settings = ClusterSettings(
        host=host,
        port=port,
        data_dir=data_dir,
        model=model,
        served_model_name=served_model_name or (model if model in catalog.CATALOG else None),
        redis=redis,
        block_size=block_size,
        num_device_blocks=num_device_blocks,
        num_host_blocks=num_host_blocks,
        kv_memory=kv_memory,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        preemption_mode=preemption_mode,
        max_model_len=max_model_len,
        scheduling_policy=scheduling_policy,
        max_waiting=max_waiting,
        max_waiting_tokens=max_waiting_tokens,
        queue_timeout_s=queue_timeout,
        api_keys=api_keys,
        threads=threads,
        dtype=dtype,
        kernels=kernels,
        weights=weights,
        activations=activations,
        step=step,
        drain_timeout_s=drain_timeout,
        in_process=in_process,
    )
    folder = DataFolder(settings.data_dir)
    with errors_shown(), folder.locked(), Stages(out) as stages:
        settings = dataclasses.replace(settings, port=claim_port(settings.host, settings.port))
        with stages.stage("model", settings.model):
            path = catalog.locate(settings.model)
        supervisor = Supervisor(local_cluster(settings, path, folder, folder.make_admin_key()), folder, err)
        asyncio.run(_until_asked_to_end(supervisor, _serve(supervisor, stages, example)))


async def _serve(supervisor: Supervisor, stages: Stages, example: str | None) -> None:
    started_s = time.monotonic()
    await supervisor.start(stages)
    stages.close()
    _greet(supervisor, time.monotonic() - started_s)
    await together(supervisor.watch(), _complete(supervisor.base_url, example))


async def _complete(base_url: str, example: str | None) -> None:
    if example is not None:
        await asyncio.to_thread(show_completion, base_url, Prompt(example, EXAMPLE_TOKENS, stop="\n"))


async def _until_asked_to_end(supervisor: Supervisor, serving: Coroutine[None, None, None]) -> None:
    """Run ``serving`` until SIGINT or SIGTERM, then end the services in order; a second signal ends them at once."""
    asked, hurry = asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurry if asked.is_set() else asked).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end)
    work, asking = asyncio.create_task(serving), asyncio.create_task(asked.wait())
    await asyncio.wait([work, asking], return_when=asyncio.FIRST_COMPLETED)
    asking.cancel()
    work.cancel()
    await asyncio.wait([work])
    if asked.is_set():
        out.print("Ending the cluster; running requests may finish. Another Ctrl-C ends it at once.")
    await supervisor.drain(hurry)
    if not work.cancelled():
        work.result()


def _greet(supervisor: Supervisor, taken_s: float) -> None:
    address = supervisor.base_url
    out.print(f"\n[bold green]Octavo is ready[/] after {taken_s:.1f} s: [bold]{address}/v1[/]\n")
    out.print(
        f"  curl {address}/v1/completions -H 'Content-Type: application/json' \\\n"
        '    -d \'{"prompt": "The capital of France is", "max_tokens": 16, "temperature": 0, "stop": "\\n"}\'\n',
        soft_wrap=True,
        markup=False,
    )
    out.print(f"Data and logs are in {supervisor.folder.root}. Ctrl-C ends the cluster.", soft_wrap=True, markup=False)
