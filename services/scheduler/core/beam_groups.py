"""Beam search on block tables (paper §4.4): which beams of a group share, copy and give back memory.

Each beam is a sequence. When the most probable next tokens of all beams of a group are known, its search picks the
next beams. The first child of a beam continues in its memory, every other one is forked from it, and beams without a
child end:

    beam 1 ─┬─ 1 + a    in place
            └─ 1 + b    forked
    beam 2              released
    beam 3 ─── 3 + c    in place

The next plan carries this out, forks first. Blocks are copied when a beam writes into one that is shared.
"""

from collections.abc import Iterable, Iterator
from itertools import compress

from scheduler.core.beams import Extension
from scheduler.core.queues import Queues
from scheduler.core.request import FinishReason, GroupId, SequenceId
from scheduler.core.sequence import Sequence, SequenceGroup
from scheduler.core.steps import Top


class BeamGroups:
    """The groups of ``queues`` that search."""

    def __init__(self, queues: Queues, sequence_ids: Iterator[SequenceId]) -> None:
        self._queues = queues
        self._sequence_ids = sequence_ids

    def take(self, rows: Iterable[tuple[Sequence, Top]]) -> list[GroupId]:
        """Takes what may follow each beam that was computed; advances the groups that are complete.

        After a preemption the beams of a group may be computed in different steps; they wait for each other. Returns
        the groups whose search is over; they have ended.
        """
        changed: dict[GroupId, SequenceGroup] = {}
        for sequence, row in rows:
            sequence.row = row
            changed[sequence.group_id] = self._queues.groups[sequence.group_id]
        return [group_id for group_id, group in changed.items() if self._advance(group)]

    def _advance(self, group: SequenceGroup) -> bool:
        """Replaces the beams of a group by the next ones; whether its search is over."""
        parents = group.live_sequences
        rows = [sequence.row for sequence in parents if sequence.row is not None]
        beams = [sequence.beam for sequence in parents if sequence.beam is not None]
        if group.search is None or len(rows) < len(parents):
            return False
        extensions = group.search.extend(beams, rows)
        if extensions:
            self._replace(group, parents, extensions)
        else:
            self._queues.finish([(sequence, FinishReason.STOP) for sequence in parents])
        return not extensions

    def _replace(self, group: SequenceGroup, parents: list[Sequence], extensions: list[Extension]) -> None:
        children: list[Sequence] = []
        parent_ids: list[SequenceId | None] = []  # of the children that are forked
        continued: set[SequenceId] = set()
        for extension in extensions:
            parent = parents[extension.parent_index]
            is_fork = parent.sequence_id in continued
            continued.add(parent.sequence_id)
            children.append(parent.branch(next(self._sequence_ids)) if is_fork else parent)
            parent_ids.append(parent.sequence_id if is_fork else None)
        for index, (child, extension) in enumerate(zip(children, extensions, strict=True)):
            child.grow(extension.beam, index)
        self._queues.replace(group, children, parent_ids)


def divide(sampled: list[tuple[Sequence, int]]) -> tuple[list[tuple[Sequence, int]], list[tuple[Sequence, int]]]:
    """The sequences that draw their tokens, and the beams, each with its row."""
    are_beams = [sequence.beam is not None for sequence, _ in sampled]
    if not any(are_beams):
        return sampled, []
    return [*compress(sampled, [not is_beam for is_beam in are_beams])], [*compress(sampled, are_beams)]
