"""`octavo blocks`: a pool as a picture, as a list of blocks, as tables, or as a tree of prefixes."""

from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.tree import Tree

from octavo.admin_client import AdminClient
from octavo.cli import options
from octavo.cli.admin import AdminKey, AsJson, PoolId, Url, admin_client
from octavo.cli.pools import pool_table
from octavo.cli.terminal import out
from octavo.pool_picture import num_cells_for, picture

SHORT_HASH = 12


class BlockState(StrEnum):
    """What a block is used for."""

    USED = "used"
    SHARED = "shared"
    CACHED = "cached"
    FREE = "free"
    PINNED = "pinned"


class Tier(StrEnum):
    """Where a block is."""

    DEVICE = "device"
    HOST = "host"


State = Annotated[BlockState | None, typer.Option(help="List the blocks in this state.", show_default=False)]
TierOption = Annotated[Tier, typer.Option(help="Which pool of the worker.")]
SequenceId = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1), help="Show this sequence's table, logical to physical.", show_default=False
    ),
]
AsTree = Annotated[bool, typer.Option("--tree", help="Show the cached prefixes as a tree.")]
Sharing = Annotated[bool, typer.Option("--sharing", help="Show who shares what with whom, and what that saves.")]


def blocks(  # noqa: PLR0913, PLR0917 - one parameter per flag
    data_dir: options.DataDir,
    url: Url = None,
    admin_key: AdminKey = None,
    pool: PoolId = None,
    state: State = None,
    tier: TierOption = Tier.DEVICE,
    sequence: SequenceId = None,
    tree: AsTree = False,
    sharing: Sharing = False,
    as_json: AsJson = False,
) -> None:
    """Show a pool's blocks: a picture of the whole, or what the options ask for."""
    if sum((state is not None, sequence is not None, tree, sharing)) > 1:
        raise typer.BadParameter("--state, --sequence, --tree and --sharing exclude each other")
    with admin_client(data_dir, url, admin_key) as client:
        if sequence is not None:
            answer = client.get(f"/sequences/{sequence}", pool=pool)
            shown: Any = _sequence_table(answer)
        elif tree:
            answer = {"nodes": list(client.pages("/prefixes", "nodes", pool=pool))}
            shown = _prefix_tree(answer["nodes"])
        elif sharing:
            answer = _whole_sharing(client, pool)
            shown = _block_table(answer["blocks"])
        elif state is not None:
            path = f"/pools/{pool or 'default'}/blocks"
            answer = {"blocks": list(client.pages(path, "blocks", state=state.value, tier=tier.value))}
            shown = _block_table(answer["blocks"])
        else:
            _show_picture(client, pool, tier, as_json=as_json)
            return
    if as_json:
        out.print_json(data=answer)
        return
    out.print(shown)
    if sharing:
        logical, physical = answer["num_logical_blocks"], answer["num_physical_blocks"]
        out.print(f"\n{logical} table entries on {physical} blocks: sharing saves {answer['saved']:.1%}")


def _show_picture(client: AdminClient, pool_id: str | None, tier: Tier, *, as_json: bool) -> None:
    path = f"/pools/{pool_id or 'default'}"
    pool = client.get(path)
    pool_map = client.get(f"{path}/map", tier=tier.value, num_cells=num_cells_for(out.width))
    if as_json:
        out.print_json(data={"pool": pool, "map": pool_map})
        return
    out.print(pool_table(pool))
    out.print()
    out.print(picture(pool_map, out.width))


def _whole_sharing(client: AdminClient, pool_id: str | None) -> dict[str, Any]:
    answer = client.get("/sharing", pool=pool_id, limit=1000)
    while answer["next_start"] is not None:
        page = client.get("/sharing", pool=pool_id, limit=1000, start=answer["next_start"])
        answer["blocks"] += page["blocks"]
        answer["next_start"] = page["next_start"]
    return answer


def _block_table(blocks: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("block", "count", "filled", "last used"):
        table.add_column(column, justify="right")
    for column in ("pinned", "hash", "held by sequences"):
        table.add_column(column, overflow="fold")
    for block in blocks:
        table.add_row(
            str(block["block_id"]),
            str(block["reference_count"]),
            str(block["num_filled_slots"]),
            f"step {block['last_used_step_id']}",
            "yes" if block["pinned"] else "",
            _short(block["hash"]),
            ", ".join(map(str, block["holders"])),
        )
    return table


def _sequence_table(sequence: dict[str, Any]) -> Group:
    title = (
        f"sequence {sequence['sequence_id']}: {sequence['num_slots']} slots on the {sequence['tier']}, "
        f"as of step {sequence['step_id']}"
    )
    table = Table(box=None, pad_edge=False)
    for column in ("logical", "physical", "count"):
        table.add_column(column, justify="right")
    table.add_column("hash")
    for entry in sequence["blocks"]:
        columns = (entry["logical"], entry["physical"], entry["reference_count"])
        table.add_row(*map(str, columns), _short(entry["hash"]))
    return Group(title, table)


def _prefix_tree(nodes: list[dict[str, Any]]) -> Tree:
    """Chains that go on without a branch are drawn on one level."""
    children: dict[str | None, list[dict[str, Any]]] = {}
    known = {node["hash"] for node in nodes}
    for node in nodes:
        children.setdefault(node["parent_hash"] if node["parent_hash"] in known else None, []).append(node)
    tree = Tree(f"{len(nodes)} cached blocks")
    waiting = [(tree, root) for root in reversed(children.get(None, []))]
    while waiting:
        branch, node = waiting.pop()
        chain = [node]
        while len(following := children.get(chain[-1]["hash"], [])) == 1:
            chain += following
        grown = branch.add(_chain_words(chain))
        waiting += [(grown, child) for child in reversed(following)]
    return tree


def _chain_words(chain: list[dict[str, Any]]) -> str:
    blocks = ", ".join(str(node["block_id"]) for node in chain[:16])
    more = f" and {len(chain) - 16} more" if len(chain) > 16 else ""
    marks = [f"count {max(node['reference_count'] for node in chain)}", f"step {chain[-1]['last_used_step_id']}"]
    if any(node["pinned"] for node in chain):
        marks.append("pinned")
    ends = [_short(node["hash"]) for node in (chain[0], chain[-1])[: len(chain)]]
    return f"{'…'.join(ends)}  blocks {blocks}{more}  ({', '.join(marks)})"


def _short(prefix_hash: str | None) -> str:
    return prefix_hash[:SHORT_HASH] if prefix_hash else "-"
