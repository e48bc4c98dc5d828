"""`octavo steps`: what the last steps moved, and why."""

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from octavo.cli import options
from octavo.cli.admin import AdminKey, AsJson, PoolId, Url, admin_client
from octavo.cli.terminal import out

Count = Annotated[int, typer.Option(callback=options.within(1, 256), help="Steps to show, at most.")]


def steps(
    data_dir: options.DataDir,
    url: Url = None,
    admin_key: AdminKey = None,
    pool: PoolId = None,
    count: Count = 20,
    as_json: AsJson = False,
) -> None:
    """Show the last steps, newest first: who entered, who gave way and why, and which blocks moved."""
    with admin_client(data_dir, url, admin_key) as client:
        answer = client.get("/steps", pool=pool, count=count)
    if as_json:
        out.print_json(data=answer)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("step", "running", "slots", "blocks taken", "used", "cached", "host"):
        table.add_column(column, justify="right")
    table.add_column("what happened", overflow="fold")
    for step in answer["steps"]:
        table.add_row(
            str(step["step_id"]),
            str(step["num_running_groups"]),
            str(step["num_new_slots"]),
            str(step["num_allocated_blocks"]),
            str(step["num_used_device_blocks"]),
            str(step["num_cached_device_blocks"]),
            str(step["num_used_host_blocks"]),
            escape("; ".join(events(step))),
        )
    out.print(table)


def events(step: dict[str, Any]) -> list[str]:
    """What a step did besides going on, in words."""
    told = []
    if step["num_released_sequences"]:
        told.append(f"{step['num_released_sequences']} sequences ended")
    told += [f"group {group['group_id']} gave way ({group['mode']}): {group['reason']}" for group in step["preempted"]]
    if step["admitted_group_ids"]:
        told.append(f"groups {_listed(step['admitted_group_ids'])} entered")
    if step["refusal"]:
        told.append(f"waits: {step['refusal']}")
    for name, words in (("swap_outs", "swapped out"), ("swap_ins", "swapped in"), ("copies", "copied")):
        if step[name]:
            told.append(f"{len(step[name])} blocks {words}")
    if step["evicted_block_ids"]:
        told.append(f"blocks {_listed(step['evicted_block_ids'])} evicted")
    if step["num_ended_pins"]:
        told.append(f"{step['num_ended_pins']} pins gave way")
    return told


def _listed(ids: list[int], most: int = 8) -> str:
    shown = ", ".join(map(str, ids[:most]))
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"
