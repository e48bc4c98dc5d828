"""The scheduler's command line."""

from collections.abc import Callable

import typer

from scheduler import flags
from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode
from scheduler.errors import InvalidConfiguration
from scheduler.settings import LogLevel, Settings, default_model_name


def command(run: Callable[[Settings], int]) -> typer.Typer:
    """The command line that calls ``run`` and exits with what it returns; 2 for settings that are refused."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.command(help="Serves the REST API and schedules requests on a gpuworker and a kvmanager.")
    def scheduler(  # noqa: PLR0913 - one parameter per flag
        *,
        kvmanager: flags.Kvmanager,
        worker: flags.Worker,
        model: flags.Model,
        host: flags.Host = "127.0.0.1",
        port: flags.Port = 8000,
        served_model_name: flags.ServedModelName = None,
        max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
        max_num_seqs: flags.MaxNumSeqs = 64,
        preemption_mode: flags.PreemptionModeFlag = PreemptionMode.AUTO,
        overlap: flags.Overlap = True,
        max_model_len: flags.MaxModelLen = None,
        max_waiting: flags.MaxWaiting = 1024,
        max_waiting_tokens: flags.MaxWaitingTokens = None,
        queue_timeout: flags.QueueTimeout = 0.0,
        scheduling_policy: flags.SchedulingPolicyFlag = SchedulingPolicy.FCFS,
        api_keys: flags.ApiKeys = None,
        max_body_bytes: flags.MaxBodyBytes = 8 * 1024 * 1024,
        drain_timeout: flags.DrainTimeout = 30.0,
        admin_key: flags.AdminKey = None,
        log_level: flags.LogLevelFlag = LogLevel.INFO,
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
                overlap=overlap,
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
