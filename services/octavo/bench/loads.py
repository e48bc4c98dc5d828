"""What to send, and to whom."""

import random
from dataclasses import dataclass
from pathlib import Path

from octavo.bench.traces import read_trace
from octavo.bench.workload import RECIPES, Workload, of_shapes, uniform
from octavo.errors import BenchFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server and how to talk to it. ``None``: it wants no key, names its model itself, counts tokens itself."""

    url: str
    api_key: str | None = None
    model: str | None = None
    tokenizer: str | None = None  # address of a server, or a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What to send. ``None`` leaves the choice to the workload."""

    workload: str = "single"
    trace: Path | None = None
    num_requests: int | None = None
    max_concurrency: int | None = None
    rate: float | None = None  # requests a second; makes an open loop of any workload
    seed: int = 0
    lengths: tuple[int, int] | None = None  # tokens in and out of every request, all at once; instead of a workload


def make_workload(options: LoadOptions) -> Workload:
    """The requests that ``options`` describe; equal options make equal requests. Raises ``BenchFailed``."""
    generator = random.Random(options.seed)  # noqa: S311 - no secret
    if options.trace is not None:
        workload = of_shapes(options.trace.stem, read_trace(options.trace), options.num_requests)
    elif options.lengths is not None:
        workload = uniform(options.num_requests or 1, *options.lengths)
    elif options.workload in RECIPES:
        recipe = RECIPES[options.workload]
        workload = recipe.make(options.num_requests or recipe.num_requests, generator)
    else:
        raise BenchFailed(f"--workload is {options.workload!r}, but must be one of {', '.join(RECIPES)}")
    if options.rate is not None:
        return workload.paced(options.rate, generator)
    return workload if options.max_concurrency is None else workload.at_concurrency(options.max_concurrency)
