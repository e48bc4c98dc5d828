"""`octavo keys`: who may call the API."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from octavo.cli.options import within
from octavo.cli.terminal import err, errors_shown, out
from octavo.errors import KeysUnusable
from octavo.key_file import KeyFile
from octavo.key_store import KeyClass, KeyStore, KeyWish, create_key, is_redis_url

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke the keys of callers.")

Source = Annotated[
    str,
    typer.Option("--api-keys", envvar="OCTAVO_API_KEYS", help="File of keys or URL of Redis, as given to `octavo up`."),
]
MAX_PER_MINUTE = 2**53  # as the scheduler's, which counts in floats
Limit = Annotated[
    int | None, typer.Option(callback=within(1, MAX_PER_MINUTE), show_default=False, help="Default: no limit.")
]


@app.command()
def create(
    api_keys: Source,
    tenant: Annotated[
        str, typer.Option(help="Who calls. Keys of one tenant share cached prefixes and may end each other's requests.")
    ],
    key_class: Annotated[KeyClass, typer.Option("--class", help="What it opens.")] = KeyClass.INFERENCE,
    requests_per_minute: Limit = None,
    tokens_per_minute: Limit = None,
) -> None:
    """Make a key and print it, this once. A running cluster knows it within a second."""
    with errors_shown():
        if not tenant.strip():
            raise typer.BadParameter("must not be blank", param_hint="--tenant")
        wish = KeyWish(
            tenant=tenant,
            key_class=key_class,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )
        stored, key = create_key(_store(api_keys), wish)
    err.print(f"Key {stored.key_id} of the class {stored.key_class.value}. It is not shown again:", soft_wrap=True)
    out.print(key, markup=False, soft_wrap=True)


@app.command("list")
def list_keys(api_keys: Source) -> None:
    """Show every key by its id."""
    table = Table(box=None, pad_edge=False)
    for column in ("id", "tenant", "class", "requests/min", "tokens/min", "created"):
        table.add_column(column, overflow="fold")
    with errors_shown():
        for key in _store(api_keys).read():
            limits = (str(limit or "-") for limit in (key.requests_per_minute, key.tokens_per_minute))
            table.add_row(key.key_id, key.tenant, key.key_class.value, *limits, key.created)
    out.print(table)


@app.command()
def revoke(api_keys: Source, key_id: Annotated[str, typer.Argument(help="As `octavo keys list` shows it.")]) -> None:
    """Take a key away. A running cluster refuses it within a second; requests in progress finish."""
    with errors_shown():
        revoked = _store(api_keys).revoke(key_id)
    out.print(f"Key {revoked.key_id} of {revoked.tenant} is revoked.", markup=False, soft_wrap=True)


def _store(source: str) -> KeyStore:
    if not is_redis_url(source):
        return KeyFile(Path(source))
    try:
        from octavo.key_redis import KeyRedis  # noqa: PLC0415 - only here is the client needed
    except ImportError as fault:
        raise KeysUnusable("keys in Redis need its client: pip install 'octavo[kvmanager]'") from fault
    return KeyRedis(source)
