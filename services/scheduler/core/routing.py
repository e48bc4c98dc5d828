"""Which worker a request goes to: where most of its prefix is cached, weighed against load (DESIGN §4).

A worker's load is what it still owes, in tokens: prompt tokens that were sent to it and have given no first token yet,
and a constant for every request that is open there, for its decode steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

WorkerId = NewType("WorkerId", int)
"""Index of a worker: 0, 1, …"""

OPEN_REQUEST_TOKENS = 256  # what an open request weighs beside prompt tokens: about the products of one decode step
MAX_CANDIDATES = 32  # workers that are weighed for one request, however many hold its first blocks


class RoutingPolicy(StrEnum):
    """How a worker is chosen."""

    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    TWO_CHOICES = "two-choices"  # the less loaded of two drawn ones
    PREFIX_AWARE = "prefix-aware"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a router sees of a request."""

    num_tokens: int
    prefix_hashes: Sequence[bytes]  # one per full block


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request went. Whoever sent it there hands this back when it gave its first token and when it ended."""

    worker_id: WorkerId
    num_tokens: int  # of the prompt, to be computed there as far as the router knows


class Loads:
    """What every worker owes, in tokens."""

    def __init__(self, num_workers: int) -> None:
        self.tokens = [0] * num_workers
        self._next = 0  # behind the last that got something: of equals, the first from here on

    def sent(self, route: Route) -> None:
        """A request is open at a worker now."""
        self.tokens[route.worker_id] += route.num_tokens + OPEN_REQUEST_TOKENS
        self._next = route.worker_id + 1

    def prefilled(self, route: Route) -> None:
        """Its prompt is computed."""
        self.tokens[route.worker_id] -= route.num_tokens

    def ended(self, route: Route) -> None:
        """It is open no longer; ``prefilled`` was told before."""
        self.tokens[route.worker_id] -= OPEN_REQUEST_TOKENS

    def least(self) -> WorkerId:
        """The worker that owes least; equals take turns."""
        fewest = min(self.tokens)
        try:
            return WorkerId(self.tokens.index(fewest, self._next))
        except ValueError:
            return WorkerId(self.tokens.index(fewest))


class CachedPrefixes:
    """Which workers hold which block of which prefix, as their kvmanagers tell it."""

    def __init__(self) -> None:
        self._holders: dict[bytes, list[WorkerId]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def published(self, worker_id: WorkerId, prefix_hash: bytes) -> None:
        """A worker caches one block more. It did not hold this one."""
        self._holders.setdefault(prefix_hash, []).append(worker_id)

    def evicted(self, worker_id: WorkerId, prefix_hash: bytes) -> None:
        """A worker cached this block and does no longer."""
        holders = self._holders[prefix_hash]
        holders.remove(worker_id)
        if not holders:
            del self._holders[prefix_hash]

    def longest(self, prefix_hashes: Sequence[bytes], most: int) -> dict[WorkerId, int]:
        """At most ``most`` workers that hold a prefix, each with the length of its longest in blocks, longest first.

        A chain is evicted tail before head, so who holds a block holds all before it.
        """
        rows: list[list[WorkerId]] = []
        for prefix_hash in prefix_hashes:
            holders = self._holders.get(prefix_hash)
            if holders is None:
                break
            rows.append(holders)
        found: dict[WorkerId, int] = {}
        for num_blocks in range(len(rows), 0, -1):
            for worker_id in rows[num_blocks - 1]:
                if len(found) == most:
                    return found
                found.setdefault(worker_id, num_blocks)
        return found


class Chooser(Protocol):
    """Chooses a worker. Changes nothing but its own turn."""

    def choose(self, prompt: Prompt) -> Route:
        """The worker for a prompt."""


class RoundRobin:
    """One after the other."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._next = 0

    def choose(self, prompt: Prompt) -> Route:
        """The next worker."""
        worker_id = WorkerId(self._next)
        self._next = (self._next + 1) % self._num_workers
        return Route(worker_id, prompt.num_tokens)


class LeastLoaded:
    """Whoever owes least."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads

    def choose(self, prompt: Prompt) -> Route:
        """The least loaded of all workers."""
        return Route(self._loads.least(), prompt.num_tokens)


class TwoChoices:
    """The less loaded of two workers at random: nearly as even as asking all of them (Mitzenmacher 2001)."""

    def __init__(self, loads: Loads, draw: Callable[[int], int]) -> None:
        """``draw(n)`` is a number from 0 to n - 1."""
        self._loads = loads
        self._draw = draw

    def choose(self, prompt: Prompt) -> Route:
        """The less loaded of two drawn workers, which differ if there are two."""
        tokens = self._loads.tokens
        first = self._draw(len(tokens))
        second = (first + 1 + self._draw(len(tokens) - 1)) % len(tokens) if len(tokens) > 1 else first
        return Route(WorkerId(first if tokens[first] <= tokens[second] else second), prompt.num_tokens)


class PrefixAware:
    """Whoever would have computed the prompt first: its load, weighed, and the tokens it does not have cached."""

    def __init__(self, loads: Loads, prefixes: CachedPrefixes, block_size: int, load_weight: float) -> None:
        self._loads = loads
        self._prefixes = prefixes
        self._block_size = block_size
        self._load_weight = load_weight

    def choose(self, prompt: Prompt) -> Route:
        """The cheapest of those that hold the longest prefixes and of the least loaded one."""
        # At least one token is always computed, so the last block of a whole number of them is no help.
        useful = prompt.prefix_hashes[: (prompt.num_tokens - 1) // self._block_size]
        candidates = self._prefixes.longest(useful, MAX_CANDIDATES)
        best = Route(self._loads.least(), prompt.num_tokens)
        best = Route(best.worker_id, self._num_uncached(prompt, candidates.get(best.worker_id, 0)))
        best_cost = self._cost(best)
        for worker_id, num_blocks in candidates.items():
            route = Route(worker_id, self._num_uncached(prompt, num_blocks))
            if (cost := self._cost(route)) < best_cost:
                best, best_cost = route, cost
        return best

    def _num_uncached(self, prompt: Prompt, num_blocks: int) -> int:
        return prompt.num_tokens - num_blocks * self._block_size

    def _cost(self, route: Route) -> float:
        return self._load_weight * self._loads.tokens[route.worker_id] + route.num_tokens


class Router:
    """A policy with what it knows: loads by what was routed and answered, cached prefixes by what workers tell."""

    def __init__(self, chooser: Chooser, loads: Loads, prefixes: CachedPrefixes | None) -> None:
        """``prefixes`` is ``None`` for a policy that does not look at them: then nobody needs to tell."""
        self._chooser = chooser
        self._loads = loads
        self.prefixes = prefixes

    def route(self, prompt: Prompt) -> Route:
        """Chooses a worker and counts the request there."""
        route = self._chooser.choose(prompt)
        self._loads.sent(route)
        return route

    def prefilled(self, route: Route) -> None:
        """The request gave its first token."""
        self._loads.prefilled(route)

    def ended(self, route: Route) -> None:
        """The request gave its last token."""
        self._loads.ended(route)


@dataclass(frozen=True, slots=True)
class RouterShape:
    """What a router is made for."""

    num_workers: int
    block_size: int
    load_weight: float = 1.0  # of a token that a worker owes, against one that a prompt would need computed


def make_router(policy: RoutingPolicy, shape: RouterShape, draw: Callable[[int], int]) -> Router:
    """A router that knows of no request and no prefix yet."""
    loads = Loads(shape.num_workers)
    match policy:
        case RoutingPolicy.ROUND_ROBIN:
            return Router(RoundRobin(shape.num_workers), loads, None)
        case RoutingPolicy.LEAST_LOADED:
            return Router(LeastLoaded(loads), loads, None)
        case RoutingPolicy.TWO_CHOICES:
            return Router(TwoChoices(loads, draw), loads, None)
        case RoutingPolicy.PREFIX_AWARE:
            prefixes = CachedPrefixes()
            return Router(PrefixAware(loads, prefixes, shape.block_size, shape.load_weight), loads, prefixes)
