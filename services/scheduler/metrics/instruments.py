"""What is counted and timed as it happens (docs/operations.md lists the names)."""

from prometheus_client import CollectorRegistry, Counter

from scheduler.metrics.tally import Count, Histogram

_GAPS_S = (
    2e-5,
    5e-5,
    1e-4,
    1.5e-4,
    2e-4,
    3e-4,
    4e-4,
    5e-4,
    7e-4,
    1e-3,
    1.5e-3,
    2e-3,
    3e-3,
    5e-3,
    0.01,
    0.02,
    0.05,
    0.1,
)
_STEPS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_REQUESTS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Instruments:
    """One process's histograms and counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.step_s = self._histogram("octavo_step_seconds", "Time that the worker computed a step", _STEPS_S)
        self.step_gap_s = self._histogram(
            "octavo_step_gap_seconds", "Time that the worker waited for the next step while sequences ran", _GAPS_S
        )
        self.step_exchange_s = self._histogram(
            "octavo_step_exchange_seconds", "Time of a step's messages that its computation does not cover", _GAPS_S
        )
        self.step_phase_s = Counter(
            "octavo_step_phase_seconds", "Time that steps computed, by phase", ("phase",), registry=self.registry
        )
        self.grant_s = self._histogram("octavo_grant_seconds", "Time that the kvmanager took to answer", _GAPS_S)
        self.journal_s = self._histogram("octavo_journal_seconds", "Of this, the time that the journal took", _GAPS_S)
        self.first_token_s = self._histogram(
            "octavo_time_to_first_token_seconds", "From a request's acceptance to its first token", _REQUESTS_S
        )
        self.inter_token_s = self._histogram(
            "octavo_inter_token_seconds", "Between two tokens of one choice", (0.001, *_STEPS_S)
        )
        self.request_s = self._histogram(
            "octavo_request_seconds", "From a request's acceptance to the end of its stream", _REQUESTS_S
        )
        self.prompt_tokens = self._counter("octavo_prompt_tokens", "Tokens of accepted prompts")
        self.output_tokens = self._counter("octavo_output_tokens", "Tokens of outputs")
        self.computed_tokens = self._counter("octavo_computed_tokens", "Tokens that the worker computed")
        self.ended_choices = Counter(
            "octavo_ended_choices", "Outputs that ended, by reason", ("reason",), registry=self.registry
        )

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(name, what, buckets)
        self.registry.register(histogram)
        return histogram

    def _counter(self, name: str, what: str) -> Count:
        count = Count(name, what)
        self.registry.register(count)
        return count
