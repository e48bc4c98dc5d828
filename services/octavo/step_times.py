"""Where the time of steps went, from two looks at the scheduler's metrics."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

SAMPLE = re.compile(r'^(octavo_\w+?)(?:\{phase="(\w+)"\})? (\S+)$', re.MULTILINE)
PHASE = "octavo_step_phase_seconds_total"

Samples = Mapping[tuple[str, str], float]
"""By name and phase; the phase is empty for all but one."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Means over the steps of an interval, in seconds. A step costs ``compute_s`` and ``gap_s`` of the worker's time.

    What the control plane takes runs beside the worker and shows in the gap as far as it is not covered.
    """

    num_steps: int
    compute_s: float
    gap_s: float  # in which the worker waited for the next step
    phases_s: Mapping[str, float]  # of the compute time, on the clock of one thread; empty where it is not told
    exchange_s: float  # messages to and from the worker that no computation covers
    grant_s: float  # from a plan to its grant, messages included
    journal_s: float  # of this, the journal entry


def parse_metrics(page: str) -> Samples:
    """The samples of a page in Prometheus' text format that have no label besides the phase."""
    return {(name, phase): float(value) for name, phase, value in SAMPLE.findall(page)}


def step_times(before: Samples, after: Samples) -> StepTimes | None:
    """What happened between two looks; ``None`` if no step was computed."""
    num_steps = _grown(before, after, "octavo_step_seconds_count")
    if num_steps <= 0:
        return None
    phases = [phase for name, phase in after if name == PHASE]

    def mean(name: str) -> float:
        return _grown(before, after, f"octavo_{name}_seconds_sum") / num_steps

    return StepTimes(
        num_steps=round(num_steps),
        compute_s=mean("step"),
        gap_s=mean("step_gap"),
        phases_s={phase: _grown(before, after, PHASE, phase) / num_steps for phase in phases},
        exchange_s=mean("step_exchange"),
        grant_s=mean("grant"),
        journal_s=mean("journal"),
    )


def _grown(before: Samples, after: Samples, name: str, phase: str = "") -> float:
    return after.get((name, phase), 0.0) - before.get((name, phase), 0.0)
