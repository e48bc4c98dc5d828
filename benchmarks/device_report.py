"""What `make device-check` found, as a table, a page and JSON; and the time that it may take."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

HOW_TO = """\
`make device-check` on a machine with a CUDA device (compute capability 8.0 or later), nvcc and a torch that knows CUDA
builds the kernels, runs `tests/contract/kernel_ops` on the device, compares the tokens of whole steps with the
reference, takes these figures and rewrites this page, within seven minutes. Where torch is in another Python than
`.venv`'s: `python3 benchmarks/device_check.py`.
"""

COLUMNS = """\
Times are of one call among many in a CUDA graph, over more memory than the caches hold; attention is of one layer,
over blocks scattered in the pool. "of copy" is the rate over that of a plain copy. "beyond torch" is the time over that
of torch's `scaled_dot_product_attention` on contiguous memory: the paper's kernel cost 20 to 26 % (§7.1), the aim is
5 % at most.
"""


class Budget:
    """Seconds that are left of those that the whole check may take."""

    def __init__(self, total_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end_s = clock() + total_s

    @property
    def left_s(self) -> float:
        """Never negative."""
        return max(0.0, self._end_s - self._clock())

    def allows(self, seconds: float) -> bool:
        """Whether something that takes so long still fits."""
        return self.left_s >= seconds


@dataclass(frozen=True, slots=True)
class Figure:
    """One timed kernel."""

    kernel: str
    case: str
    seconds: float
    num_bytes: float = 0.0  # read and written in memory, at least
    flops: float = 0.0
    torch_seconds: float | None = None  # of torch's own on contiguous memory
    against_host: bool = False  # whether it moves between host and device

    @property
    def bytes_per_s(self) -> float:
        """How fast it moves its bytes."""
        return self.num_bytes / self.seconds

    @property
    def cost(self) -> float | None:
        """Time beyond torch's own, as a share of it: 0.05 is 5 % slower. None where torch was not timed."""
        return None if self.torch_seconds is None else self.seconds / self.torch_seconds - 1.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the check."""

    name: str
    outcome: str
    seconds: float
    passed: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run found."""

    device: str
    software: str
    date: str
    commit: str
    copy_bytes_per_s: float = 0.0  # within the device, read and written
    host_bytes_per_s: float = 0.0  # from pinned host memory to the device
    stages: Sequence[Stage] = ()
    figures: Sequence[Figure] = field(default_factory=tuple)

    @property
    def passed(self) -> bool:
        """Whether every stage did."""
        return all(stage.passed for stage in self.stages)

    def share_of_copy(self, figure: Figure) -> float | None:
        """Its rate over that of a plain copy of the same kind; None where nothing was measured."""
        copy = self.host_bytes_per_s if figure.against_host else self.copy_bytes_per_s
        return figure.bytes_per_s / copy if copy and figure.num_bytes else None


def page(report: Report | None) -> str:
    """The text of ``docs/device-figures.md``; ``None``: nothing was measured yet."""
    if report is None:
        return f"# Figures of the CUDA kernels\n\nNot measured yet: no CUDA machine was at hand.\n\n{HOW_TO}"
    head = (
        f"{report.device}; {report.software}; commit {report.commit}, {report.date}. A copy within the device moves "
        f"{report.copy_bytes_per_s / 1e9:.0f} GB/s, read and written; from pinned host memory "
        f"{report.host_bytes_per_s / 1e9:.1f} GB/s."
    )
    stages = _table(
        ("stage", "outcome", "seconds"),
        [(stage.name, stage.outcome, f"{stage.seconds:.0f}") for stage in report.stages],
    )
    return f"# Figures of the CUDA kernels\n\n{head}\n\n{stages}\n{COLUMNS}\n{figures_table(report)}\n{HOW_TO}"


def figures_table(report: Report) -> str:
    """A row for each figure."""
    rows = [
        (
            figure.kernel,
            figure.case,
            f"{figure.seconds * 1e6:.1f}",
            f"{figure.bytes_per_s / 1e9:.0f}" if figure.num_bytes else "",
            f"{figure.flops / figure.seconds / 1e12:.0f}" if figure.flops else "",
            _percent(report.share_of_copy(figure)),
            _percent(figure.cost, signed=True),
        )
        for figure in report.figures
    ]
    return _table(("kernel", "case", "µs", "GB/s", "TFLOP/s", "of copy", "beyond torch"), rows)


def to_json(report: Report) -> str:
    """The report's fields, figures in seconds, bytes and operations."""
    return json.dumps(asdict(report), indent=2) + "\n"


def _percent(share: float | None, *, signed: bool = False) -> str:
    if share is None:
        return ""
    return f"{share * 100:+.0f} %" if signed else f"{share * 100:.0f} %"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
