"""From the records of a run to its figures."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from octavo.bench.records import RequestRecord


@dataclass(frozen=True, slots=True)
class Objectives:
    """Service level objectives: a request is good if it meets each that is given. In seconds."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def met_by(self, record: RequestRecord) -> bool:
        """A request of one token has no TPOT to miss."""
        return _within(record.ttft_s, self.ttft_s) and _within(record.tpot_s, self.tpot_s)


def _within(value_s: float | None, limit_s: float | None) -> bool:
    return limit_s is None or value_s is None or value_s <= limit_s


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles, interpolated linearly between the closest two values; in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one run. Rates are per second of its duration; ``None`` where nothing was there to measure."""

    duration_s: float
    num_requests: int
    num_completed: int
    num_ended_early: int  # completed with fewer tokens than asked for
    errors: Mapping[str, int]
    num_prompt_tokens: int
    num_output_tokens: int
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    decode_tokens_per_s: float | None  # of one request: the inverse of the median TPOT
    ttft: Distribution | None
    tpot: Distribution | None
    itl: Distribution | None
    e2e: Distribution | None
    normalized: Distribution | None
    good_requests_per_s: float
    good_share: float
    prefix_hit_rate: float | None  # cached over all prompt tokens


def distribution(values: Iterable[float | None]) -> Distribution | None:
    """Of the values that are there."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) == 1:
        return Distribution(known[0], known[0], known[0], known[0])
    cuts = statistics.quantiles(known, n=100, method="inclusive")
    return Distribution(statistics.fmean(known), cuts[49], cuts[89], cuts[98])


def summarize(records: Sequence[RequestRecord], objectives: Objectives | None = None) -> Summary:
    """Duration is from the first sending to the last end. Failed requests count as errors and nowhere else."""
    done = [record for record in records if not record.error]
    duration_s = max((r.ended_s for r in records), default=0.0) - min((r.sent_s for r in records), default=0.0)
    per_s = 1 / duration_s if duration_s > 0 else 0.0
    num_prompt_tokens = sum(record.num_prompt_tokens for record in done)
    num_output_tokens = sum(record.num_output_tokens for record in done)
    num_good = sum((objectives or Objectives()).met_by(record) for record in done)
    tpot = distribution(record.tpot_s for record in done)
    return Summary(
        duration_s=duration_s,
        num_requests=len(records),
        num_completed=len(done),
        num_ended_early=sum(record.num_output_tokens < record.num_wanted_tokens for record in done),
        errors=dict(Counter(record.error for record in records if record.error)),
        num_prompt_tokens=num_prompt_tokens,
        num_output_tokens=num_output_tokens,
        requests_per_s=len(done) * per_s,
        output_tokens_per_s=num_output_tokens * per_s,
        total_tokens_per_s=(num_prompt_tokens + num_output_tokens) * per_s,
        decode_tokens_per_s=1 / tpot.p50 if tpot and tpot.p50 > 0 else None,
        ttft=distribution(record.ttft_s for record in done),
        tpot=tpot,
        itl=distribution(gap for record in done for gap in record.itl_s),
        e2e=distribution(record.e2e_s for record in done),
        normalized=distribution(record.normalized_s for record in done),
        good_requests_per_s=num_good * per_s,
        good_share=num_good / len(records) if records else 0.0,
        prefix_hit_rate=_prefix_hit_rate(done),
    )


def _prefix_hit_rate(done: Sequence[RequestRecord]) -> float | None:
    told = [record for record in done if record.num_cached_tokens is not None]
    num_prompt_tokens = sum(record.num_prompt_tokens for record in told)
    if not num_prompt_tokens:
        return None
    return sum(record.num_cached_tokens or 0 for record in told) / num_prompt_tokens
