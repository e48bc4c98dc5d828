"""The `octavo` command: composition root of the command line."""

import typer

from octavo.cli import (
    audit,
    bench,
    blocks,
    complete,
    down,
    keys,
    memory_simulator,
    model,
    perf,
    pools,
    probe,
    replay,
    reproduce,
    simulate,
    simulate_cluster,
    status,
    steps,
    up,
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Octavo serves large language models with paged KV memory kept by a service of its own.",
)
for command in (up.up, status.status, down.down, complete.complete, perf.perf, probe.probe):
    app.command()(command)
for question in (pools.pools, blocks.blocks, steps.steps, replay.replay, audit.audit):
    app.command(rich_help_panel="Look into KV memory")(question)
for experiment in (
    simulate.simulate,
    simulate_cluster.simulate_cluster,
    reproduce.reproduce,
    memory_simulator.memory_simulator,
):
    app.command(rich_help_panel="Run the paper again")(experiment)
app.add_typer(model.app, name="model")
app.add_typer(keys.app, name="keys")
app.add_typer(bench.app, name="bench")
