"""What came of a run."""

from dataclasses import dataclass

from octavo.bench.records import RequestRecord
from octavo.bench.summary import Summary


@dataclass(frozen=True, slots=True)
class Gauges:
    """Share of KV memory that requests held, from 0 to 1; ``None`` where the server does not tell."""

    mean_kv_use: float | None = None
    max_kv_use: float | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """What was sent, to whom, and what came of it."""

    url: str
    model: str
    workload: str
    seed: int
    rate: float | None
    max_concurrency: int | None
    num_skipped: int  # requests longer than the server's sequences may be
    prompts: str  # "token ids", "text" or "words"
    summary: Summary
    gauges: Gauges
    records: tuple[RequestRecord, ...]
