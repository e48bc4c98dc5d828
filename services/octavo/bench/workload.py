"""What is asked of a server: the shapes of requests, and when each may be sent."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

MIX_SIGMA = 0.8  # of the logarithm of a length
MIX_LENGTHS = (4, 1024)  # shortest and longest prompt or output of `mix`, in tokens


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a prompt: the first ``num_tokens`` tokens of the text called ``name``, the same wherever it occurs."""

    name: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class RequestShape:
    """One request before it has words. It is not sent earlier than ``arrival_s`` seconds after the start."""

    passages: tuple[Passage, ...]
    num_output_tokens: int
    arrival_s: float = 0.0

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
        return sum(passage.num_tokens for passage in self.passages)

    @property
    def num_tokens(self) -> int:
        """Length of prompt and output together, in tokens."""
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in the order of sending, at most ``max_concurrency`` of them open at once (``None``: no limit).

    A closed loop has a limit and no arrival times, an open loop has arrival times and no limit.
    """

    name: str
    shapes: tuple[RequestShape, ...]
    max_concurrency: int | None

    def paced(self, rate: float, generator: random.Random) -> "Workload":
        """The same requests in an open loop: Poisson arrivals, ``rate`` a second."""
        arrivals_s = poisson_arrivals(len(self.shapes), rate, generator)
        shapes = (replace(shape, arrival_s=time_s) for shape, time_s in zip(self.shapes, arrivals_s, strict=True))
        return replace(self, shapes=tuple(shapes), max_concurrency=None)

    def at_concurrency(self, max_concurrency: int) -> "Workload":
        """The same requests in a closed loop."""
        shapes = tuple(replace(shape, arrival_s=0.0) for shape in self.shapes)
        return replace(self, shapes=shapes, max_concurrency=max_concurrency)

    def within(self, max_model_len: int) -> "Workload":
        """Without the requests that have more tokens than a server's sequences may have."""
        return replace(self, shapes=tuple(shape for shape in self.shapes if shape.num_tokens <= max_model_len))


def poisson_arrivals(num_requests: int, rate: float, generator: random.Random) -> list[float]:
    """Times in seconds, the first after a wait like all others; ``rate`` is in requests a second."""
    return list(accumulate(generator.expovariate(rate) for _ in range(num_requests)))


def own(index: int, num_tokens: int) -> Passage:
    """Text that only request ``index`` has."""
    return Passage(f"own {index}", num_tokens)


def _uniform(num_requests: int, num_prompt_tokens: int, num_output_tokens: int) -> tuple[RequestShape, ...]:
    return tuple(RequestShape((own(i, num_prompt_tokens),), num_output_tokens) for i in range(num_requests))


def single(num_requests: int, _: random.Random) -> Workload:
    """One at a time, 128 tokens in, 128 out."""
    return Workload("single", _uniform(num_requests, 128, 128), 1)


def batch(num_requests: int, _: random.Random) -> Workload:
    """All at once, 128 tokens in, 128 out."""
    return Workload("batch", _uniform(num_requests, 128, 128), num_requests)


def prefix(num_requests: int, _: random.Random) -> Workload:
    """Sixteen at once, 512 tokens that all share and 32 of their own in, 32 out."""
    shared = Passage("shared", 512)
    return Workload("prefix", tuple(RequestShape((shared, own(i, 32)), 32) for i in range(num_requests)), 16)


def mix(num_requests: int, generator: random.Random) -> Workload:
    """Sixty-four at once, log-normal lengths: 160 tokens in and 200 out in the mean."""
    shapes = (
        RequestShape((own(i, _log_normal(160, generator)),), _log_normal(200, generator)) for i in range(num_requests)
    )
    return Workload("mix", tuple(shapes), 64)


def sonnet(num_requests: int, _: random.Random) -> Workload:
    """Thirty-two at once, 200 tokens that all share and 350 of their own in, 150 out."""
    shared = Passage("shared", 200)
    return Workload("sonnet", tuple(RequestShape((shared, own(i, 350)), 150) for i in range(num_requests)), 32)


def _log_normal(mean: float, generator: random.Random) -> int:
    drawn = generator.lognormvariate(math.log(mean) - MIX_SIGMA**2 / 2, MIX_SIGMA)
    return min(max(round(drawn), MIX_LENGTHS[0]), MIX_LENGTHS[1])


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a workload known by name is made, and of how many requests unless somebody says otherwise."""

    make: Callable[[int, random.Random], Workload]
    num_requests: int


RECIPES: Mapping[str, Recipe] = {
    "single": Recipe(single, 16),
    "batch": Recipe(batch, 32),
    "prefix": Recipe(prefix, 64),
    "mix": Recipe(mix, 100),
    "sonnet": Recipe(sonnet, 64),
}


def uniform(num_requests: int, num_prompt_tokens: int, num_output_tokens: int) -> Workload:
    """Requests of one size, all at once."""
    return Workload("uniform", _uniform(num_requests, num_prompt_tokens, num_output_tokens), num_requests)


def of_shapes(name: str, shapes: Sequence[RequestShape], num_requests: int | None) -> Workload:
    """A recorded trace, or its first ``num_requests`` requests, at its own times."""
    return Workload(name, tuple(shapes[:num_requests]), None)
