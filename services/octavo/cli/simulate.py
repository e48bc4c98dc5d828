"""`octavo simulate`: a trace on a simulated server, with the real scheduler and a memory space."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from octavo.cli import options
from octavo.cli.admin import AsJson
from octavo.cli.terminal import errors_shown, out
from octavo.settings import PreemptionMode
from octavo.simulation.experiments import Load
from octavo.simulation.lengths import Dataset
from octavo.simulation.machines import Server
from octavo.simulation.outcome import Outcome
from octavo.simulation.settings import Settings, preemption_named
from octavo.simulation.spaces import Pool, SpaceName
from octavo.simulation.workload import Workload

SERVER, LOAD = "Server", "Load"
ServerName = Annotated[Server, typer.Option("--server", help="Model on the paper's GPUs.", rich_help_panel=SERVER)]
Space = Annotated[SpaceName, typer.Option(help="How KV memory is kept.", rich_help_panel=SERVER)]
SlotCount = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1),
        help="KV slots of the server. Default: as many as the paper's Table 1 says.",
        show_default=False,
        rich_help_panel=SERVER,
    ),
]
BlockSize = Annotated[int, typer.Option(callback=options.within(1), help="Tokens per block.", rich_help_panel=SERVER)]
MaxNumSeqs = Annotated[
    int, typer.Option(callback=options.within(1), help="Sequences that run at once, at most.", rich_help_panel=SERVER)
]
DatasetName = Annotated[Dataset, typer.Option("--workload", help="Lengths of the requests.", rich_help_panel=LOAD)]
Rate = Annotated[
    float, typer.Option(callback=options.within(0.001), help="Requests a second, Poisson.", rich_help_panel=LOAD)
]
Duration = Annotated[
    float, typer.Option(callback=options.within(1), help="Seconds in which requests arrive.", rich_help_panel=LOAD)
]
NumSequences = Annotated[
    int, typer.Option("--n", callback=options.within(1, 16), help="Outputs of each request.", rich_help_panel=LOAD)
]
Beams = Annotated[bool, typer.Option("--beams", help="Search for the outputs by beams.", rich_help_panel=LOAD)]
Seed = Annotated[int, typer.Option(help="Of arrivals and lengths.", rich_help_panel=LOAD)]


def simulate(  # noqa: PLR0913, PLR0917 - one per option
    rate: Rate,
    server: ServerName = Server.OPT_13B,
    space: Space = SpaceName.PAGED,
    num_slots: SlotCount = None,
    block_size: BlockSize = 16,
    max_num_seqs: MaxNumSeqs = 256,
    preemption_mode: options.PreemptionModeOption = PreemptionMode.AUTO,
    workload: DatasetName = Dataset.SHAREGPT,
    duration: Duration = 3600.0,
    num_sequences: NumSequences = 1,
    beams: Beams = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Simulate a server with the real scheduler core and a memory space, on a virtual clock."""
    pool = Pool(server, block_size, num_slots=num_slots)
    settings = Settings(space, pool, max_num_seqs, preemption_mode=preemption_named(preemption_mode.value))
    load = Load(settings, Workload(workload, duration, seed, num_sequences=num_sequences, is_beam_search=beams))
    with errors_shown():
        outcome = load.at(rate)
    if as_json:
        out.print_json(data=asdict(outcome))
    else:
        out.print(_table(outcome))


def _table(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    waste = outcome.waste
    rows = {
        "requests": f"{outcome.num_requests}, in {outcome.simulated_s:.0f} s and {outcome.num_steps} steps",
        "normalized latency": f"{outcome.normalized_latency_s:.4f} s/token",
        "running at once": f"{outcome.num_batched:.2f} requests, {outcome.num_batched_sequences:.2f} sequences",
        "KV slots": f"{waste.filled:.1%} filled, {waste.reserved:.1%} reserved, {waste.internal:.1%} internal and "
        f"{waste.external:.1%} external waste or free",
        "preemptions": str(outcome.num_preemptions),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table
