"""The memory simulator as one HTML file, which needs nothing else."""

import json
from pathlib import Path
from typing import Any

from octavo.memory_simulator.simulation import Frame, Run, simulate
from octavo.memory_simulator.workload import Workload

TEMPLATE = Path(__file__).with_name("page.html")
PLACE = '{"runs": []}'  # where the template wants the data


def page(workload: Workload) -> str:
    """The page that plays ``workload`` over contiguous stretches and over pages, side by side."""
    # What ends a script must not stand in one.
    data = json.dumps(document(workload), separators=(",", ":")).replace("</", "<\\/")
    return TEMPLATE.read_text(encoding="utf-8").replace(PLACE, data)


def document(workload: Workload) -> dict[str, Any]:
    """Everything that the page shows, as JSON; also what `octavo memory-simulator --json` writes."""
    ways = (("contiguous", workload.max_len), ("paged", workload.page))
    return {
        "slots": workload.slots,
        "requests": [[lengths.prompt, lengths.answer] for lengths in workload.requests],
        "runs": [{"name": name, **_run_as_json(simulate(workload, piece))} for name, piece in ways],
    }


def _run_as_json(run: Run) -> dict[str, Any]:
    return {
        "piece": run.piece,
        "steps": run.num_steps,
        "utilization": round(run.utilization, 4),
        "most_running": run.most_running,
        "pauses": run.num_pauses,
        "frames": [_frame_as_json(frame) for frame in run.frames],
    }


def _frame_as_json(frame: Frame) -> dict[str, Any]:
    """Fillings are one character for each slot; owners are runs of [request, slots], -1 for nobody."""
    return {
        "owners": _runs(frame.owners),
        "fillings": "".join(frame.fillings),
        "filled": frame.num_filled,
        "taken": frame.num_taken,
        "running": frame.running,
        "waiting": frame.waiting,
        "admitted": frame.admitted,
        "paused": frame.paused,
        "finished": frame.finished,
    }


def _runs(owners: tuple[int, ...]) -> list[list[int]]:
    runs: list[list[int]] = []
    for owner in owners:
        if runs and runs[-1][0] == owner:
            runs[-1][1] += 1
        else:
            runs.append([owner, 1])
    return runs
