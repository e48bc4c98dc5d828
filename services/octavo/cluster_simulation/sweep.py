"""Cluster sizes times policies on one trace."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from octavo.cluster_simulation.cluster import Cluster, ClusterShape
from octavo.cluster_simulation.outcome import ClusterOutcome
from octavo.cluster_simulation.trace import TraceRequest
from scheduler.core.routing import RoutingPolicy

POLICY_NAMES = tuple(policy.value for policy in RoutingPolicy)
"""The router's policies, as they are written on a command line."""


def policy_named(name: str) -> RoutingPolicy:
    """The policy of that name. Raises ``ValueError`` for an unknown one."""
    return RoutingPolicy(name)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is run: every size under every policy, everything else as in ``shape``."""

    shape: ClusterShape
    sizes: Sequence[int]
    policies: Sequence[RoutingPolicy]
    num_copies: int = 1  # of the trace, whatever the size
    workers_per_copy: int | None = None  # or one for so many workers each, so that the load of a worker stays

    def copies_for(self, num_workers: int) -> int:
        """Copies of the trace that a cluster of this size gets."""
        if self.workers_per_copy is None:
            return self.num_copies
        return max(1, num_workers // self.workers_per_copy)

    def run(self, trace: Sequence[TraceRequest]) -> Iterator[ClusterOutcome]:
        """Outcomes by size, then by policy, each as soon as it is there. Raises ``TraceUnusable``."""
        for num_workers in self.sizes:
            for policy in self.policies:
                shape = replace(self.shape, num_workers=num_workers, policy=policy)
                yield Cluster(shape, trace, self.copies_for(num_workers)).run()
