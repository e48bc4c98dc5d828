"""The kvmanager's composition root."""

import asyncio
import logging
import socket
import sys
from typing import Annotated

import typer

from kvmanager.adapters.redis_journal import RedisJournalStore
from kvmanager.adapters.state_codec import StateCodec
from kvmanager.pool import JournalPolicy
from kvmanager.pools import Pools
from kvmanager.process import serve
from kvmanager.settings import LogLevel, Settings, SettingsRefused

app = typer.Typer(add_completion=False)


@app.command()
def kvmanager(  # noqa: PLR0913, PLR0917 - one parameter per setting
    listen: Annotated[
        str, typer.Option(envvar="OCTAVO_KVMANAGER_LISTEN", help="gRPC address: unix:/path.sock or host:port.")
    ],
    redis: Annotated[str, typer.Option(envvar="OCTAVO_REDIS", help="URL of the Redis or Valkey with the journals.")],
    watermark: Annotated[
        float,
        typer.Option(envvar="OCTAVO_WATERMARK", help="Share of the device blocks that entering groups leave free."),
    ] = 0.01,
    instance: Annotated[
        str,
        typer.Option(
            envvar="OCTAVO_KVMANAGER_INSTANCE",
            help="Name of this process to others; the same after a restart. Default: host name and address.",
        ),
    ] = "",
    standby: Annotated[
        bool, typer.Option(envvar="OCTAVO_KVMANAGER_STANDBY", help="Follow the pools that other instances own.")
    ] = False,
    lease: Annotated[
        float, typer.Option(envvar="OCTAVO_KVMANAGER_LEASE", help="Seconds after which a dead owner is replaced.")
    ] = 3.0,
    journal_patience: Annotated[
        float, typer.Option(envvar="OCTAVO_JOURNAL_PATIENCE", help="Seconds that a step waits for Redis.")
    ] = 10.0,
    snapshot_interval: Annotated[
        int, typer.Option(envvar="OCTAVO_SNAPSHOT_INTERVAL", help="Journal entries between two snapshots.")
    ] = 2000,
    pin_budget: Annotated[
        float, typer.Option(envvar="OCTAVO_PIN_BUDGET", help="Share of the device blocks that pins may hold.")
    ] = 0.25,
    log_level: Annotated[LogLevel, typer.Option(envvar="OCTAVO_LOG_LEVEL")] = LogLevel.INFO,
) -> None:
    """Keeps the block tables, reference counts and prefix caches of the workers' KV memory."""
    try:
        settings = Settings(
            listen=listen,
            redis=redis,
            watermark=watermark,
            log_level=log_level,
            instance=instance or f"{socket.gethostname()}/{listen}",
            standby=standby,
            lease_s=lease,
            journal=JournalPolicy(journal_patience, snapshot_interval),
            pin_budget=pin_budget,
        )
    except SettingsRefused as error:
        raise typer.BadParameter(str(error)) from error
    logging.basicConfig(
        level=settings.log_level.upper(), stream=sys.stderr, format="%(asctime)s kvmanager %(levelname)s %(message)s"
    )
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    store = RedisJournalStore(settings.redis, instance=settings.instance, lease_s=settings.lease_s)
    await serve(settings, store, Pools(store, StateCodec(), settings.journal))
