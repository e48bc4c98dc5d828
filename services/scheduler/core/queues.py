"""Who waits, who runs, and what is to be given back."""

from collections.abc import Iterable

from scheduler.core.giving_way import Free, Shortage, Way, groups_giving_way
from scheduler.core.order import SchedulingPolicy, WaitingLine
from scheduler.core.planning import RunningBatch
from scheduler.core.preemption import PreemptionMode
from scheduler.core.request import FinishReason, GroupId, SequenceId
from scheduler.core.sequence import Sequence, SequenceGroup, SequenceStatus
from scheduler.core.steps import Grant, Preemption


class Queues:
    """All live groups of a pool. The running ones are in order of their ranks, and so are the waiting ones.

    Groups preempted either way wait at their old place: a swapped one is a waiting one that finds its KV again. Among
    equally urgent groups the running ones have arrived before the waiting ones.
    """

    def __init__(self, mode: PreemptionMode, policy: SchedulingPolicy = SchedulingPolicy.FCFS) -> None:
        self._mode = mode
        self.policy = policy
        self.groups: dict[GroupId, SequenceGroup] = {}  # live, in order of arrival
        self.sequences: dict[SequenceId, Sequence] = {}  # live
        self.waiting = WaitingLine(policy.rank)
        self.running = RunningBatch((), mode)
        self.forks: dict[SequenceId, SequenceId] = {}  # child: parent, for the next plan
        self.released: list[SequenceId] = []  # ended sequences whose blocks the next plan gives back, after the forks

    def add(self, group: SequenceGroup) -> None:
        """Queues a new group."""
        self.groups[group.group_id] = group
        self.sequences.update((sequence.sequence_id, sequence) for sequence in group.sequences)
        self.waiting.add(group)

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
            self.waiting.remove_finished()
        self._rebuild_running(changed.keys())

    def preempt(self, grant: Grant) -> None:
        """Sends the victims back to their places in the queue.

        The blocks of a group that ended since the plan are gone already, unless they were swapped.
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
                self.waiting.add(group)
        if grant.preempted_group_ids:
            self._rebuild_running(grant.preempted_group_ids)

    def make_way(self, free: Free, refused_group_id: GroupId | None) -> Way:
        """Has less urgent running groups give way to the first waiting one, if it cannot enter otherwise.

        ``refused_group_id`` is the group for which memory had no room in the last step.
        """
        head = self.waiting.head
        if head is None:
            return Way()
        is_refused = head.group_id == refused_group_id
        outranked = [group for group in reversed(self.running.groups) if self.policy.outranks(head, group)]
        shortage = Shortage.of(head, free, is_refused=is_refused)
        if shortage.is_over:
            return Way(num_paused=len(outranked))
        victims = groups_giving_way(outranked, shortage, free.block_size)
        self._give_way(victims)
        return Way(victims, is_refused)

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
            self.running = RunningBatch(sorted([*self.running.groups, *admitted], key=self.policy.rank), self._mode)
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

    def replace(self, group: SequenceGroup, sequences: list[Sequence], parent_ids: Iterable[SequenceId | None]) -> None:
        """Gives a running group other sequences. Those with a parent are forked from it, and the rest it had already.

        Those that it has no more end, after the forks.
        """
        dead = [sequence for sequence in group.live_sequences if sequence not in sequences]
        group.sequences = sequences
        for sequence, parent_id in zip(sequences, parent_ids, strict=True):
            if parent_id is not None:
                self.forks[sequence.sequence_id] = parent_id
                self.sequences[sequence.sequence_id] = sequence
        self.finish([(sequence, FinishReason.STOP) for sequence in dead])
        self._rebuild_running([group.group_id])

    def lose_memory(self) -> None:
        """Every block is gone: all live sequences wait, to be computed again from their known tokens."""
        for sequence in self.sequences.values():
            sequence.block_hashes.clear()
            if sequence.status is not SequenceStatus.WAITING:
                sequence.lose_memory()
        self.waiting = WaitingLine(self.policy.rank, self.groups.values())
        self.running = RunningBatch((), self._mode)
        self.forks = {}
        self.released = []

    def check(self, num_steps_in_hand: int) -> None:
        """Raises ``AssertionError`` if the queues contradict the sequences."""
        self._check_order()
        most_ahead = max(0, num_steps_in_hand - 1)
        for sequence in self.running.sequences:
            assert sequence.status is SequenceStatus.RUNNING
            assert 0 <= sequence.num_computed_tokens <= sequence.num_wanted_tokens + most_ahead
            has_next = sequence.num_uncomputed_tokens or sequence.row is not None
            assert has_next or num_steps_in_hand, "computed, but not for the other beams"
        for group in self.running.groups:
            running = group.running_sequences
            is_trunk = len(running) == 1 and running[0].num_branches > 1
            assert is_trunk or running == group.live_sequences, "not forked together"
        for group in self.waiting:
            assert all(s.status in (SequenceStatus.WAITING, SequenceStatus.SWAPPED) for s in group.live_sequences)
        live = {sequence.sequence_id for group in self.groups.values() for sequence in group.live_sequences}
        assert live == self.sequences.keys(), "a live sequence is not listed, or an ended one is"

    def _give_way(self, victims: Iterable[SequenceGroup]) -> None:
        """Sends running groups back to their places in the queue; the next plan releases what they hold.

        Full blocks stay cached, so that little is computed again if they return before the blocks are needed. The
        memory of a child whose fork is not planned yet is its parent's.
        """
        changed = set()
        for group in victims:
            for sequence in group.running_sequences:
                if self.forks.pop(sequence.sequence_id, None) is None:
                    self.released.append(sequence.sequence_id)
                sequence.lose_memory()
            group.num_preemptions += 1
            self.waiting.add(group)
            changed.add(group.group_id)
        self._rebuild_running(changed)

    def _check_order(self) -> None:
        rank = self.policy.rank
        running, waiting = self.running.groups, list(self.waiting)
        assert running == sorted(running, key=rank), "the running groups are not in order"
        assert waiting == sorted(waiting, key=rank), "the waiting groups are not in order"
        # Sorting is stable: the order within equal urgency is that of the two queues.
        by_urgency = sorted([*running, *waiting], key=lambda group: rank(group).urgency)
        assert by_urgency == sorted(self.groups.values(), key=rank), "a group was overtaken by an equally urgent one"

    def _rebuild_running(self, changed: Iterable[GroupId]) -> None:
        changed = set(changed)
        if any(group.group_id in changed for group in self.running.groups):
            self.running = RunningBatch((group for group in self.running.groups if group.running_sequences), self._mode)
