"""The messages of one step as the core sees them: a plan goes in, a grant comes out (docs/architecture.md).

Fields that belong together are columns: entry ``i`` of each describes the same group, sequence or block.
"""

from collections.abc import Sequence as Column
from dataclasses import dataclass
from enum import Enum
from typing import NewType

SequenceId = NewType("SequenceId", int)
GroupId = NewType("GroupId", int)
BlockId = NewType("BlockId", int)
PrefixHash = NewType("PrefixHash", bytes)

HASH_BYTES = 32
"""Length of a prefix hash: SHA-256."""


class Preemption(Enum):
    """How a victim gives its memory back (paper §4.5)."""

    RECOMPUTE = 1
    SWAP = 2


@dataclass(frozen=True, slots=True)
class PoolShape:
    """The size of a pool, fixed for an epoch."""

    block_size: int  # tokens
    num_device_blocks: int
    num_host_blocks: int
    watermark_blocks: int  # device blocks that an entering group leaves free


@dataclass(frozen=True, slots=True)
class SealedBlocks:
    """Blocks that became full and whose KV is computed."""

    sequence_ids: Column[SequenceId] = ()
    block_indexes: Column[int] = ()  # logical index in the sequence's table
    hashes: Column[PrefixHash] = ()


@dataclass(frozen=True, slots=True)
class Fork:
    """The child shares every block of the parent, the partly filled last one included."""

    parent_id: SequenceId
    child_id: SequenceId


@dataclass(frozen=True, slots=True)
class RunningGroups:
    """Groups that write KV in this step, most important first; the last one is the first victim."""

    group_ids: Column[GroupId] = ()
    num_sequences: Column[int] = ()  # per group
    preemptions: Column[Preemption] = ()  # per group: how it gives way
    sequence_ids: Column[SequenceId] = ()
    num_new_slots: Column[int] = ()  # per sequence


@dataclass(frozen=True, slots=True)
class EnteringGroups:
    """Groups that ask to enter, in order; nobody overtakes."""

    token_budget: int = 0  # new slots that all of them together may take in this step
    group_ids: Column[GroupId] = ()
    num_sequences: Column[int] = ()  # per group
    sequence_ids: Column[SequenceId] = ()
    num_tokens: Column[int] = ()  # per sequence: known tokens
    prefix_hashes: Column[Column[PrefixHash]] = ()  # per sequence: one per full block of those tokens, or none


@dataclass(frozen=True, slots=True)
class Plan:
    """What one step wants, carried out in the order of the fields."""

    step_id: int
    sealed: SealedBlocks = SealedBlocks()
    forks: Column[Fork] = ()
    released: Column[SequenceId] = ()
    running: RunningGroups = RunningGroups()
    entering: EnteringGroups = EnteringGroups()


@dataclass(frozen=True, slots=True)
class BlockChanges:
    """What a worker does to its tables and memory before it computes the step.

    Tables: forks, then dropped, replaced, appended. Memory: swap-outs, then swap-ins, then copies; copies behave as
    if all reads came first.
    """

    forks: Column[Fork] = ()
    dropped: Column[SequenceId] = ()
    replaced_sequence_ids: Column[SequenceId] = ()
    replaced_indexes: Column[int] = ()
    replaced_block_ids: Column[BlockId] = ()
    appended_sequence_ids: Column[SequenceId] = ()
    appended_num_blocks: Column[int] = ()  # per appended sequence
    appended_block_ids: Column[BlockId] = ()
    swap_outs: Column[int] = ()  # device block, host block, …
    swap_ins: Column[int] = ()  # host block, device block, …
    copies: Column[int] = ()  # source, destination, …


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Block counts of a pool after a grant."""

    num_used_device_blocks: int = 0
    num_cached_device_blocks: int = 0  # free, but a prefix hit can take them back
    num_used_host_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """What the step got. Everything that is not named preempted was granted as asked."""

    step_id: int
    preempted_group_ids: Column[GroupId] = ()  # in the order in which they gave way
    preempted_modes: Column[Preemption] = ()  # what was done, which may differ from what was asked
    admitted_group_ids: Column[GroupId] = ()
    admitted_sequence_ids: Column[SequenceId] = ()
    num_present_tokens: Column[int] = ()  # per admitted sequence
    num_new_slots: Column[int] = ()  # per admitted sequence
    changes: BlockChanges = BlockChanges()
    usage: PoolUsage = PoolUsage()
    refusal: str = ""  # why the head of the entering list was not admitted
