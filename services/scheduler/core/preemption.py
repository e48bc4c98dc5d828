"""How a group gives its memory back when it becomes the victim (paper §4.5)."""

from scheduler.core.sequence import SequenceGroup
from scheduler.core.steps import Preemption


def preemption_mode(group: SequenceGroup) -> Preemption:
    """A group of one is recomputed; a larger one is swapped, since its sequences could not share recomputed blocks."""
    return Preemption.RECOMPUTE if len(group.live_sequences) == 1 else Preemption.SWAP
