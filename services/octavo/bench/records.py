"""What happened to one request."""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """Times are in seconds from the start of the run. ``error`` is empty if the answer came to its end."""

    sent_s: float
    ended_s: float
    chunk_times_s: tuple[float, ...]  # when text arrived; a chunk may hold several tokens
    num_prompt_tokens: int
    num_output_tokens: int
    num_wanted_tokens: int
    num_cached_tokens: int | None = None  # None: the server does not tell
    error: str = ""

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return self.chunk_times_s[0] - self.sent_s if self.chunk_times_s else None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first."""
        if self.num_output_tokens < 2 or len(self.chunk_times_s) < 2:
            return None
        return (self.chunk_times_s[-1] - self.chunk_times_s[0]) / (self.num_output_tokens - 1)

    @property
    def itl_s(self) -> list[float]:
        """Inter-token latencies: the waits between two chunks."""
        return [after - before for before, after in pairwise(self.chunk_times_s)]

    @property
    def e2e_s(self) -> float:
        """From sending to the end of the answer."""
        return self.ended_s - self.sent_s

    @property
    def normalized_s(self) -> float | None:
        """End-to-end latency per output token, the paper's measure (§6.1)."""
        return self.e2e_s / self.num_output_tokens if self.num_output_tokens else None
