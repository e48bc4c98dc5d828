"""`octavo down`: end a running cluster."""

import os
import signal
import time
from typing import Annotated

import typer

from octavo.cli import options
from octavo.cli.terminal import errors_shown, out
from octavo.data_folder import DataFolder
from octavo.errors import ServiceFailed

POLL_INTERVAL_S = 0.1

Timeout = Annotated[float, typer.Option(callback=options.within(0), help="Seconds to wait for the end.")]


def down(data_dir: options.DataDir, timeout: Timeout = 90.0) -> None:
    """End the cluster that runs on the data folder; running requests may finish."""
    folder = DataFolder(data_dir)
    with errors_shown():
        pid = folder.read_state().pid
        os.kill(pid, signal.SIGTERM)
        deadline_s = time.monotonic() + timeout
        while folder.is_held():
            if time.monotonic() > deadline_s:
                raise ServiceFailed(f"The cluster (process {pid}) still runs after {timeout:g} s.")
            time.sleep(POLL_INTERVAL_S)
    out.print("The cluster has ended.")
