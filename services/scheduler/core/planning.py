"""What a step asks of memory: who continues, with how many slots, and who should enter."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from scheduler.core.giving_way import would_give_way_at_once
from scheduler.core.preemption import PreemptionMode
from scheduler.core.prefix_hash import HASH_BYTES, PrefixHasher
from scheduler.core.sequence import Sequence, SequenceGroup
from scheduler.core.steps import EnteringGroups, RunningGroups

MAX_ENTERING_GROUPS = 16
"""Most groups listed as entering in one step, so that a long queue costs nothing."""


class RunningBatch:
    """The running groups in order of their ranks, as columns that are rebuilt only when the groups change."""

    def __init__(self, groups: Iterable[SequenceGroup] = (), mode: PreemptionMode = PreemptionMode.AUTO) -> None:
        self.groups = list(groups)
        running = [group.running_sequences for group in self.groups]
        self.sequences: list[Sequence] = [sequence for sequences in running for sequence in sequences]
        self.num_seqs = sum(group.num_places for group in self.groups)
        self._group_ids = [group.group_id for group in self.groups]
        self._num_sequences = [len(sequences) for sequences in running]
        self._preemptions = [mode.of(num_sequences) for num_sequences in self._num_sequences]
        self._sequence_ids = [sequence.sequence_id for sequence in self.sequences]

    def columns(self, token_budget: int, num_paused: int = 0) -> RunningGroups:
        """Slots for this step: one for each decode first, then chunks of prompts in order of rank.

        A prompt for which nothing is left is listed with no slots, and keeps its place among the victims. The prompts
        of the last ``num_paused`` groups get none: somebody more urgent enters in this step.
        """
        return RunningGroups(
            group_ids=self._group_ids,
            num_sequences=self._num_sequences,
            preemptions=self._preemptions,
            sequence_ids=self._sequence_ids,
            num_new_slots=self._num_new_slots(token_budget, sum(self._num_sequences[len(self.groups) - num_paused :])),
        )

    def _num_new_slots(self, token_budget: int, num_paused: int) -> list[int]:
        slots = [sequence.num_uncomputed_tokens for sequence in self.sequences]
        num_decodes = slots.count(1)
        if num_decodes == len(slots):
            return slots
        left = token_budget - num_decodes
        first_paused = len(slots) - num_paused
        for index, num_uncomputed in enumerate(slots):
            if num_uncomputed > 1:
                slots[index] = min(num_uncomputed, left) if index < first_paused else 0
                left -= slots[index]
        return slots


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of a step for those that should enter."""

    num_tokens: int
    num_seqs: int
    num_groups: int
    num_blocks: int | None  # free ones; None where nobody runs, and so all are for the first group


def entering_groups(waiting: Iterable[SequenceGroup], hasher: PrefixHasher, room: Room) -> EnteringGroups:
    """The first waiting groups for which there is room, as columns. All sequences that a group may run count."""
    if room.num_tokens <= 0 or room.num_seqs <= 0:
        return EnteringGroups()
    num_seqs = room.num_seqs
    listed: list[list[Sequence]] = []
    for group in islice(waiting, room.num_groups):
        num_seqs -= group.num_places
        if num_seqs < 0:
            break
        entrants = group.entrants()
        if would_give_way_at_once(group, entrants, hasher.block_size, room.num_blocks):
            break
        listed.append(entrants)
    entering = [sequence for sequences in listed for sequence in sequences]
    for sequence in entering:
        hasher.extend(sequence.block_hashes, sequence.token_ids, sequence.cache_salt)
    return EnteringGroups(
        token_budget=room.num_tokens,
        group_ids=[sequences[0].group_id for sequences in listed],
        num_sequences=[len(sequences) for sequences in listed],
        sequence_ids=[sequence.sequence_id for sequence in entering],
        num_tokens=[sequence.num_wanted_tokens for sequence in entering],
        prefix_hashes=[_hashes_of_wanted_blocks(sequence, hasher.block_size) for sequence in entering],
    )


def _hashes_of_wanted_blocks(sequence: Sequence, block_size: int) -> bytes:
    if sequence.scoring is not None and not sequence.scoring.is_complete:
        return b""  # every prompt token that is left must be computed to be scored
    return bytes(sequence.block_hashes[: sequence.num_wanted_tokens // block_size * HASH_BYTES])
