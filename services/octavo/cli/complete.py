"""`octavo complete`: one completion, streamed to the terminal."""

import time
from typing import Annotated

import typer
from rich.markup import escape

from octavo.cli import options
from octavo.cli.terminal import errors_shown, out
from octavo.completion import Prompt, stream_completion
from octavo.data_folder import DataFolder

DEFAULT_TOKENS = 32


def show_completion(base_url: str, prompt: Prompt, api_key: str | None = None) -> None:
    """Print ``prompt`` and, as it arrives, how the API at ``base_url`` goes on with it."""
    started_s = time.monotonic()
    out.print(f"\n[bold]{escape(prompt.text)}[/]", end="", soft_wrap=True)
    try:
        for piece in stream_completion(base_url, prompt, api_key):
            out.print(piece, end="", markup=False, soft_wrap=True)
    finally:  # an error has a line of its own
        out.print()
    out.print(f"\n[dim]completed in {time.monotonic() - started_s:.1f} s[/]")


def complete(  # noqa: PLR0913 - one parameter per flag
    prompt: Annotated[str, typer.Argument(help="Text to go on with.")],
    *,
    data_dir: options.DataDir,
    url: Annotated[
        str | None,
        typer.Option(
            help="Address of the API. Default: the cluster that runs on --data-dir.",
            envvar="OCTAVO_URL",
            show_default=False,
        ),
    ] = None,
    api_key: options.ApiKey = None,
    max_tokens: Annotated[
        int, typer.Option(callback=options.within(1), help="Tokens to complete, at most.")
    ] = DEFAULT_TOKENS,
    temperature: Annotated[
        float, typer.Option(callback=options.within(0), help="0 takes the likeliest token each time.")
    ] = 0.0,
    stop: Annotated[str | None, typer.Option(help="Text before which the answer ends.", show_default=False)] = None,
) -> None:
    """Complete a prompt and show the answer as it arrives."""
    with errors_shown():
        address = url or DataFolder(data_dir).read_state().base_url
        show_completion(address, Prompt(prompt, max_tokens, temperature, stop), api_key)
