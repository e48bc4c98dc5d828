"""What a step asks of memory: who continues, with how many slots, and who should enter."""

from collections.abc import Iterable
from itertools import islice

from scheduler.core.preemption import preemption_mode
from scheduler.core.prefix_hash import PrefixHasher
from scheduler.core.sequence import Sequence, SequenceGroup
from scheduler.core.steps import EnteringGroups, Preemption, RunningGroups

MAX_ENTERING_GROUPS = 16
"""Most groups listed as entering in one step, so that a long queue costs nothing."""


class RunningBatch:
    """The running groups in order of arrival, as columns that are rebuilt only when the groups change."""

    def __init__(self, groups: Iterable[SequenceGroup] = ()) -> None:
        self.groups = list(groups)
        live = [group.live_sequences for group in self.groups]
        self.sequences: list[Sequence] = [sequence for sequences in live for sequence in sequences]
        self._group_ids = [group.group_id for group in self.groups]
        self._num_sequences = [len(sequences) for sequences in live]
        self._preemptions: list[Preemption] = [preemption_mode(group) for group in self.groups]
        self._sequence_ids = [sequence.sequence_id for sequence in self.sequences]

    def columns(self, token_budget: int) -> RunningGroups:
        """Slots for this step: one for each decode first, then chunks of prompts in order of arrival.

        A prompt for which nothing is left is listed with no slots, and keeps its place among the victims.
        """
        return RunningGroups(
            group_ids=self._group_ids,
            num_sequences=self._num_sequences,
            preemptions=self._preemptions,
            sequence_ids=self._sequence_ids,
            num_new_slots=self._num_new_slots(token_budget),
        )

    def _num_new_slots(self, token_budget: int) -> list[int]:
        slots = [len(sequence.token_ids) - sequence.num_computed_tokens for sequence in self.sequences]
        num_decodes = slots.count(1)
        if num_decodes == len(slots):
            return slots
        left = token_budget - num_decodes
        for index, num_uncomputed in enumerate(slots):
            if num_uncomputed > 1:
                slots[index] = min(num_uncomputed, left)
                left -= slots[index]
        return slots


def entering_groups(
    waiting: Iterable[SequenceGroup], hasher: PrefixHasher, *, token_budget: int, max_seqs: int, max_groups: int
) -> EnteringGroups:
    """The first waiting groups as columns, at most ``max_groups`` of them and ``max_seqs`` sequences."""
    if token_budget <= 0 or max_seqs <= 0:
        return EnteringGroups()
    listed: list[list[Sequence]] = []
    for group in islice(waiting, max_groups):
        sequences = group.live_sequences
        max_seqs -= len(sequences)
        if max_seqs < 0:
            break
        listed.append(sequences)
    entering = [sequence for sequences in listed for sequence in sequences]
    for sequence in entering:
        hasher.extend(sequence.block_hashes, sequence.token_ids)
    return EnteringGroups(
        token_budget=token_budget,
        group_ids=[sequences[0].group_id for sequences in listed],
        num_sequences=[len(sequences) for sequences in listed],
        sequence_ids=[sequence.sequence_id for sequence in entering],
        num_tokens=[len(sequence.token_ids) for sequence in entering],
        prefix_hashes=[bytes(sequence.block_hashes) for sequence in entering],
    )
