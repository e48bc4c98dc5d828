"""In which order groups run: by the policy's rank. The smallest rank is served first and gives way last."""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from scheduler.core.sequence import SequenceGroup


class Rank(NamedTuple):
    """Compared field by field. Ranks never change and no two groups have the same."""

    urgency: int  # smaller is more urgent
    arrival: int


class SchedulingPolicy(StrEnum):
    """Who is served before whom."""

    FCFS = "fcfs"  # in order of arrival
    PRIORITY = "priority"  # by the priority that requests ask for, then in order of arrival

    def rank(self, group: SequenceGroup) -> Rank:
        """Place of a group among all others."""
        return Rank(group.request.priority if self is SchedulingPolicy.PRIORITY else 0, group.group_id)

    def outranks(self, group: SequenceGroup, other: SequenceGroup) -> bool:
        """Whether ``group`` is more urgent, so that ``other`` has to give way to it. Arrival does not matter."""
        return self is SchedulingPolicy.PRIORITY and group.request.priority < other.request.priority


class WaitingLine:
    """Groups in order of their ranks, whatever the order in which they come."""

    def __init__(self, rank: Callable[[SequenceGroup], Rank], groups: Iterable[SequenceGroup] = ()) -> None:
        self._rank = rank
        self._groups = sorted(groups, key=rank)

    def __iter__(self) -> Iterator[SequenceGroup]:
        """The first to be served comes first."""
        return iter(self._groups)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._groups)

    @property
    def head(self) -> SequenceGroup | None:
        """The first to be served."""
        return self._groups[0] if self._groups else None

    def add(self, group: SequenceGroup) -> None:
        """Lines up a group at its place."""
        insort(self._groups, group, key=self._rank)

    def remove(self, group: SequenceGroup) -> None:
        """Takes a group out; the head at next to no cost."""
        self._groups.remove(group)

    def remove_finished(self) -> None:
        """Takes out the groups that ended."""
        self._groups = [group for group in self._groups if not group.is_finished]
