"""Who waits, who runs, and what is to be given back."""

from collections import deque
from collections.abc import Iterable

from scheduler.core.planning import RunningBatch
from scheduler.core.preemption import PreemptionMode
from scheduler.core.request import FinishReason, GroupId, SequenceId
from scheduler.core.sequence import Sequence, SequenceGroup, SequenceStatus
from scheduler.core.steps import Grant, Preemption


class Queues:
    """All live groups of a pool. The running ones and then the waiting ones are in order of arrival.

    Groups preempted either way wait at the front: a swapped one is a waiting one that finds its KV again.
    """

    def __init__(self, mode: PreemptionMode) -> None:
        self._mode = mode
        self.groups: dict[GroupId, SequenceGroup] = {}  # live, in order of arrival
        self.sequences: dict[SequenceId, Sequence] = {}  # live
        self.waiting: deque[SequenceGroup] = deque()
        self.running = RunningBatch((), mode)
        self.forks: dict[SequenceId, SequenceId] = {}  # child: parent, for the next plan
        self.released: list[SequenceId] = []  # ended sequences whose blocks the next plan gives back, after the forks

    def add(self, group: SequenceGroup) -> None:
        """Queues a new group."""
        self.groups[group.group_id] = group
        self.sequences.update((sequence.sequence_id, sequence) for sequence in group.sequences)
        self.waiting.append(group)

    def finish(self, ends: Iterable[tuple[Sequence, FinishReason]]) -> None:
        """Ends live sequences, and takes out the groups that have none left.

        A trunk ends before its siblings are forked only together with them.
        """
        changed: dict[GroupId, SequenceGroup] = {}
        for sequence, reason in ends:
            # The memory of a child whose fork is not planned yet is its parent's.
            is_forked = self.forks.pop(sequence.sequence_id, None) is None
            if is_forked and sequence.status is not SequenceStatus.WAITING:
                self.released.append(sequence.sequence_id)
            sequence.finish(reason)
            del self.sequences[sequence.sequence_id]
            changed[sequence.group_id] = self.groups[sequence.group_id]
        if not changed:
            return
        for group in changed.values():
            if group.is_finished:
                del self.groups[group.group_id]
        if any(group.is_finished and group in self.waiting for group in changed.values()):
            self.waiting = deque(group for group in self.waiting if not group.is_finished)
        self._rebuild_running(changed.keys())

    def preempt(self, grant: Grant) -> None:
        """Sends the victims back to the front of the queue.

        They come latest arrival first, so pushing each to the front keeps the order of arrival. The blocks of a group
        that ended since the plan are gone already, unless they were swapped.
        """
        for group_id, mode in zip(grant.preempted_group_ids, grant.preempted_modes, strict=True):
            group = self.groups.get(group_id)
            for sequence in group.running_sequences if group else ():
                if mode is Preemption.SWAP:
                    sequence.change_status(SequenceStatus.SWAPPED)
                else:
                    sequence.lose_memory()
            if group:
                group.num_preemptions += 1
                self.waiting.appendleft(group)
        if grant.preempted_group_ids:
            self._rebuild_running(grant.preempted_group_ids)

    def admit(self, grant: Grant, block_size: int) -> list[SequenceGroup]:
        """Moves the admitted groups over; what was admitted but ended since the plan is given back."""
        admitted = [group for group_id in grant.admitted_group_ids if (group := self.groups.get(group_id))]
        for group in admitted:
            self.waiting.remove(group)
        for sequence_id, num_present_tokens in zip(grant.admitted_sequence_ids, grant.num_present_tokens, strict=True):
            if (sequence := self.sequences.get(sequence_id)) is not None:
                sequence.enter(num_present_tokens, block_size)
            elif sequence_id not in self.released:
                self.released.append(sequence_id)
        if admitted:
            self.running = RunningBatch([*self.running.groups, *admitted], self._mode)
        return admitted

    def fork(self, trunks: Iterable[Sequence], block_size: int) -> None:
        """Forks the live siblings of each trunk, which has reached the end of its prompt."""
        changed: set[GroupId] = set()
        for trunk in trunks:
            trunk.num_branches = 1
            for sibling in self.groups[trunk.group_id].live_sequences:
                if sibling is not trunk:
                    sibling.fork_from(trunk, block_size)
                    self.forks[sibling.sequence_id] = trunk.sequence_id
            changed.add(trunk.group_id)
        if changed:
            self._rebuild_running(changed)

    def lose_memory(self) -> None:
        """Every block is gone: all live sequences wait, to be computed again from their known tokens."""
        for sequence in self.sequences.values():
            sequence.block_hashes.clear()
            if sequence.status is not SequenceStatus.WAITING:
                sequence.lose_memory()
        self.waiting = deque(self.groups.values())
        self.running = RunningBatch((), self._mode)
        self.forks = {}
        self.released = []

    def check(self) -> None:
        """Raises ``AssertionError`` if the queues contradict the sequences."""
        assert [*self.running.groups, *self.waiting] == list(self.groups.values()), "not in order of arrival"
        for sequence in self.running.sequences:
            assert sequence.status is SequenceStatus.RUNNING
            assert 0 <= sequence.num_computed_tokens < sequence.num_wanted_tokens
        for group in self.running.groups:
            running = group.running_sequences
            is_trunk = len(running) == 1 and running[0].num_branches > 1
            assert is_trunk or running == group.live_sequences, "not forked together"
        for group in self.waiting:
            assert all(s.status in (SequenceStatus.WAITING, SequenceStatus.SWAPPED) for s in group.live_sequences)
        live = {sequence.sequence_id for group in self.groups.values() for sequence in group.live_sequences}
        assert live == self.sequences.keys(), "a live sequence is not listed, or an ended one is"

    def _rebuild_running(self, changed: Iterable[GroupId]) -> None:
        changed = set(changed)
        if any(group.group_id in changed for group in self.running.groups):
            self.running = RunningBatch((group for group in self.running.groups if group.running_sequences), self._mode)
