"""What the commands that look into KV memory share: their options, and whom they ask."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from octavo.admin_client import AdminClient
from octavo.cli.terminal import errors_shown
from octavo.data_folder import DataFolder


def _absolute(url: str | None) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        is_absolute = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, or half an IPv6 address
        is_absolute = False
    if not is_absolute:
        raise typer.BadParameter(f"{url!r} is no address of an API; expected one such as http://127.0.0.1:8000")
    return url


Url = Annotated[
    str | None,
    typer.Option(
        callback=_absolute,
        help="Address of the API. Default: the cluster that runs on --data-dir.",
        envvar="OCTAVO_URL",
        show_default=False,
    ),
]
AdminKey = Annotated[
    str | None,
    typer.Option(
        help="Key of the admin API; better given as a variable. Default: the one in --data-dir.",
        envvar="OCTAVO_ADMIN_KEY",
        show_default=False,
    ),
]
PoolId = Annotated[
    str | None, typer.Option("--pool", help="A worker's id. Default: the only pool.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@contextmanager
def admin_client(data_dir: Path, url: str | None, admin_key: str | None) -> Iterator[AdminClient]:
    """A client for the duration of a command; errors are shown and end it."""
    with errors_shown():
        folder = DataFolder(data_dir)
        address = url or folder.read_state().base_url
        with AdminClient(address, admin_key or folder.read_admin_key()) as client:
            yield client
