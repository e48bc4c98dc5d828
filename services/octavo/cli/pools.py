"""`octavo pools`: the KV memory of each worker, in numbers."""

from typing import Any

from rich.table import Table

from octavo.cli import options
from octavo.cli.admin import AdminKey, AsJson, Url, admin_client
from octavo.cli.terminal import out


def pools(data_dir: options.DataDir, url: Url = None, admin_key: AdminKey = None, as_json: AsJson = False) -> None:
    """Show every pool: what is used, cached, pinned and swapped, and what its steps added up to."""
    with admin_client(data_dir, url, admin_key) as client:
        answer = client.get("/pools")
    if as_json:
        out.print_json(data=answer)
        return
    for pool in answer["pools"]:
        out.print(pool_table(pool))


def pool_table(pool: dict[str, Any]) -> Table:
    """One pool, a line per matter."""
    counters = pool["counters"]
    table = Table(box=None, pad_edge=False, show_header=False, title=f"pool {pool['pool_id']}", title_justify="left")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    rows = {
        "epoch, step": f"{pool['epoch']}, {pool['last_step_id']}",
        "device blocks": f"{pool['num_used_device_blocks']} used, {pool['num_cached_device_blocks']} cached, "
        f"{pool['num_pinned_device_blocks']} pinned (budget {pool['pin_budget_blocks']}) "
        f"of {pool['num_device_blocks']}, {pool['block_size']} tokens each; watermark {pool['watermark_blocks']}",
        "host blocks": f"{pool['num_used_host_blocks']} used of {pool['num_host_blocks']}",
        "sequences": f"{pool['num_sequences']}, {pool['num_swapped_sequences']} of them swapped",
        "preemptions": f"{counters['num_recomputations']} recomputed, {counters['num_swaps']} swapped, "
        f"{counters['num_swaps_refused']} dropped because the host was full",
        "blocks moved": f"{counters['num_swapped_out_blocks']} out, {counters['num_swapped_in_blocks']} in, "
        f"{counters['num_copied_blocks']} copied on write, {counters['num_evicted_blocks']} evicted",
        "prefix hits": _hits(counters),
        "journal": f"entry {pool['journal_position']}, snapshot at {pool['snapshot_position']}",
    }
    if pool["owner"]:
        rows["owner"] = pool["owner"]
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _hits(counters: dict[str, int]) -> str:
    hit, asked = counters["num_hit_tokens"], counters["num_prompt_tokens"]
    return f"{hit} of {asked} prompt tokens ({hit / asked:.0%})" if asked else "no prompt yet"
