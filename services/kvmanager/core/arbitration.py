"""Gives the running groups their slots, and takes memory back from the end of the list where it is short."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from kvmanager.core.block_table import BlockTable, DeviceTables
from kvmanager.core.changes import ChangeLog
from kvmanager.core.host_tier import HostTier
from kvmanager.core.plan import GroupId, Preemption, RunningGroups


@dataclass(slots=True)
class Preempted:
    """Groups that gave way, in that order, how, and why."""

    group_ids: list[GroupId] = field(default_factory=list)
    modes: list[Preemption] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    num_swaps_refused: int = 0


@dataclass(slots=True)
class _Round:
    """The running list of one step. Groups from ``num_kept`` on have given way."""

    tables: Sequence[BlockTable]
    totals: Sequence[int]  # slots that each table is to have
    starts: Sequence[int]  # index of each group's first sequence, and the end
    num_kept: int

    def wants(self, group: int) -> list[tuple[BlockTable, int]]:
        start, end = self.starts[group], self.starts[group + 1]
        return [(self.tables[index], self.totals[index]) for index in range(start, end)]


class Arbitration:
    """Serves groups from the first to the last; where one does not fit, the last group of the list gives way.

    A victim has not been served in the same step, because the served ones stand before the asking one. The asking
    group itself may be the last.
    """

    __slots__ = ("_device", "_host")

    def __init__(self, device: DeviceTables, host: HostTier) -> None:
        self._device = device
        self._host = host

    def append(self, running: RunningGroups, step_id: int, changes: ChangeLog) -> Preempted:
        """Grants the new slots of every group that does not give way."""
        by_id = self._device.by_id
        tables = [by_id[sequence_id] for sequence_id in running.sequence_ids]
        totals = [table.num_slots + new for table, new in zip(tables, running.num_new_slots, strict=True)]
        # Most sequences write into room that they have: only the others are looked at.
        needy = [index for index, table in enumerate(tables) if totals[index] > table.num_writable_slots]
        wants = [(tables[index], totals[index]) for index in needy]
        preempted = Preempted()
        num_kept = len(tables)
        if self._device.num_blocks_missing(wants) <= self._device.tier.num_free:
            self._grow(wants, changes)
        else:
            turn = _Round(tables, totals, list(accumulate(running.num_sequences, initial=0)), len(running.group_ids))
            self._serve_in_turn(needy, turn, running, step_id, changes, preempted)
            num_kept = turn.starts[turn.num_kept]
        for table, total in zip(tables[:num_kept], totals, strict=False):
            table.num_slots = total
        return preempted

    def _grow(self, wants: Sequence[tuple[BlockTable, int]], changes: ChangeLog) -> None:
        for table, total in wants:
            changes.grown(table, self._device.grow(table, total))

    def _serve_in_turn(
        self,
        needy: Sequence[int],
        turn: _Round,
        running: RunningGroups,
        step_id: int,
        changes: ChangeLog,
        preempted: Preempted,
    ) -> None:
        """Serves the groups of the ``needy`` sequences one after the other, until the rest has given way."""
        served = -1
        for index in needy:
            group = bisect_right(turn.starts, index) - 1
            if group >= turn.num_kept:
                return
            if group > served:
                served = group
                self._serve(group, turn, running, step_id, changes, preempted)

    def _serve(
        self,
        group: int,
        turn: _Round,
        running: RunningGroups,
        step_id: int,
        changes: ChangeLog,
        preempted: Preempted,
    ) -> None:
        wants = turn.wants(group)
        while (missing := self._device.num_blocks_missing(wants)) > (num_free := self._device.tier.num_free):
            turn.num_kept -= 1
            victim = [table for table, _ in turn.wants(turn.num_kept)]
            asked = running.preemptions[turn.num_kept]
            done = self._preempt(victim, asked, step_id, changes)
            reason = f"group {running.group_ids[group]} needs {missing} blocks and {num_free} are free"
            if done is not asked:
                reason += f"; dropped instead of swapped: {self._host.pool.num_free} host blocks are free"
                preempted.num_swaps_refused += 1
            preempted.group_ids.append(running.group_ids[turn.num_kept])
            preempted.modes.append(done)
            preempted.reasons.append(reason)
            if turn.num_kept == group:
                return
        self._grow(wants, changes)

    def _preempt(self, tables: Sequence[BlockTable], asked: Preemption, step_id: int, changes: ChangeLog) -> Preemption:
        """Takes a group's memory back: by swapping if it was asked for and the host has room, else by dropping it."""
        for table in tables:
            changes.dropped(table.sequence_id)
        if asked is Preemption.SWAP and self._host.has_room_for(tables):
            changes.swapped_out(self._host.swap_out(tables, self._device, step_id))
            return Preemption.SWAP
        for table in tables:
            self._device.release(table, step_id)
        return Preemption.RECOMPUTE
