"""Which running groups give way to a more urgent one that waits.

They are taken from the end of the running list, as memory does it, and only if together they are enough: a group that
gives way in vain would have computed in vain. Whoever gave way waits behind the group it gave way to, so a group that
arrives makes each less urgent one give way at most once.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from scheduler.core.sequence import Sequence, SequenceGroup


@dataclass(frozen=True, slots=True)
class Free:
    """What nobody holds, as of the last grant."""

    num_seqs: int
    num_blocks: int
    block_size: int  # tokens


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a waiting group lacks to enter."""

    num_seqs: int
    num_blocks: int

    @classmethod
    def of(cls, group: SequenceGroup, free: Free, *, is_refused: bool) -> "Shortage":
        """Blocks are lacking only where memory refused the group, or is sure to: it knows what is shared and cached."""
        num_blocks = 0
        if is_refused or would_give_way_at_once(group, group.entrants(), free.block_size, free.num_blocks):
            num_blocks = max(1, num_blocks_of(group, free.block_size) - free.num_blocks)
        return cls(group.num_places - free.num_seqs, num_blocks)

    def without(self, group: SequenceGroup, block_size: int) -> "Shortage":
        """What is still lacking once ``group`` gave way."""
        return Shortage(self.num_seqs - group.num_places, self.num_blocks - num_blocks_of(group, block_size))

    @property
    def is_over(self) -> bool:
        """Whether nothing is lacking."""
        return self.num_seqs <= 0 and self.num_blocks <= 0


@dataclass(frozen=True, slots=True)
class Way:
    """What was done for the first waiting group before a plan."""

    gave_way: Collection[SequenceGroup] = ()
    is_refused: bool = False  # memory had no room for it in the last step
    num_paused: int = 0  # running groups, from the end, whose prompts pause because it can enter now


def groups_giving_way(outranked: Iterable[SequenceGroup], shortage: Shortage, block_size: int) -> list[SequenceGroup]:
    """The first of ``outranked`` that together end the shortage; none if they cannot, or need not."""
    victims: list[SequenceGroup] = []
    for group in outranked:
        if shortage.is_over:
            break
        victims.append(group)
        shortage = shortage.without(group, block_size)
    return victims if shortage.is_over else []


def would_give_way_at_once(
    group: SequenceGroup, entrants: list[Sequence], block_size: int, num_free_blocks: int | None
) -> bool:
    """Whether a group that was dropped would find room for its prompt but not for the outputs that follow at once.

    Memory admits the trunk alone, by the prompt that it asks for.
    """
    if num_free_blocks is None or all(s.num_wanted_tokens == len(s.token_ids) for s in entrants):
        return False
    return num_blocks_of(group, block_size) > num_free_blocks


def num_blocks_of(group: SequenceGroup, block_size: int) -> int:
    """Blocks of all known tokens of a group, the full ones of the prompt counted once."""
    live = group.live_sequences
    num_shared = live[0].num_prompt_tokens // block_size
    return num_shared + sum(-(-len(sequence.token_ids) // block_size) - num_shared for sequence in live)
