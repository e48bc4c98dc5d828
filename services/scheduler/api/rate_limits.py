"""How much a key may ask for in a minute."""

import math
import time
from dataclasses import dataclass
from http import HTTPStatus

from scheduler.api.errors import ApiError
from scheduler.core.keys import KeyEntry
from scheduler.core.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class Meter:
    """The two buckets of a key: requests, and tokens of prompts and outputs.

    Output tokens are counted as they come. Whoever has none left finishes what runs, and waits before the next request.
    """

    requests: TokenBucket | None
    tokens: TokenBucket | None

    @classmethod
    def of(cls, entry: KeyEntry) -> "Meter":
        """Full buckets."""
        now_s = time.monotonic()
        limits = (entry.requests_per_minute, entry.tokens_per_minute)
        return cls(*(None if limit is None else TokenBucket(limit, now_s) for limit in limits))

    def is_of(self, entry: KeyEntry) -> bool:
        """Whether these are the limits that the entry has now."""
        limits = tuple(None if bucket is None else bucket.per_minute for bucket in (self.requests, self.tokens))
        return limits == (entry.requests_per_minute, entry.tokens_per_minute)

    def count_request(self) -> None:
        """Takes one request. Raises ``ApiError`` 429 if none is left, or tokens are overdrawn."""
        self._require(self.tokens, 1, "tokens")
        self._require(self.requests, 1, "requests")
        if self.requests is not None:
            self.requests.take(1, time.monotonic())

    def require_tokens(self, num_tokens: int) -> None:
        """Raises ``ApiError`` 429 if so many are not left, nor as many as a minute brings."""
        self._require(self.tokens, num_tokens, "tokens")

    def count_tokens(self, num_tokens: int) -> None:
        """Takes tokens that were accepted or generated."""
        if self.tokens is not None:
            self.tokens.take(num_tokens, time.monotonic())

    def headers(self) -> dict[str, str]:
        """OpenAI's headers on what is left."""
        now_s = time.monotonic()
        headers: dict[str, str] = {}
        for kind, bucket in (("requests", self.requests), ("tokens", self.tokens)):
            if bucket is not None:
                headers[f"x-ratelimit-limit-{kind}"] = str(bucket.per_minute)
                headers[f"x-ratelimit-remaining-{kind}"] = str(max(0, math.floor(bucket.level(now_s))))
                headers[f"x-ratelimit-reset-{kind}"] = f"{bucket.seconds_until(bucket.per_minute, now_s):.3f}s"
        return headers

    def _require(self, bucket: TokenBucket | None, amount: int, kind: str) -> None:
        wait_s = 0.0 if bucket is None else bucket.seconds_until(amount, time.monotonic())
        if bucket is not None and wait_s:
            raise ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"the key may use {bucket.per_minute} {kind} per minute; try again in {wait_s:.1f} s",
                kind="rate_limit_error",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(math.ceil(wait_s)), **self.headers()},
            )
