"""How journal entries and snapshots are written down.

An entry is one byte that names its kind and a message as it came over the wire. A snapshot is a sequence of sections,
each a length (8 bytes, little endian) and that many bytes; arrays are little endian whatever the machine is.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from google.protobuf.message import DecodeError

from kvmanager.adapters import protobuf
from kvmanager.core.block_pool import BlockPoolSnapshot
from kvmanager.core.block_space import BlockSpaceSnapshot, TableSnapshot
from kvmanager.core.commands import Command, PinPrefix, ResetPrefixCache, UnpinPrefix
from kvmanager.core.history import COUNTER_NAMES, Counters
from kvmanager.core.pins import Pin
from kvmanager.core.plan import HASH_BYTES, BlockId, Grant, Plan, PoolShape, PrefixHash, SequenceId
from kvmanager.core.pool_state import Opening, PoolStateSnapshot
from kvmanager.errors import JournalCorrupt, MalformedPlan
from kvmanager.v1 import kvmanager_pb2 as pb

_OPENING = b"O"
_PLAN = b"P"
_PIN = b"N"
_UNPIN = b"U"
_RESET = b"R"
_MAGIC = b"octavo-pool-2"
_NO_PARENT, _LOST = -1, -2
_LENGTH = struct.Struct("<Q")
_OPENING_HEAD = struct.Struct("<QIIII?")  # epoch, block size, device, host and watermark blocks, forget sequences


def plan_entry(message: pb.Plan, grant: Grant) -> bytes:
    """The entry of a plan, without the entering groups that changed nothing but the queue behind them."""
    entering = message.entering
    # The head of the list is kept although it was refused: replaying it gives the same refusal.
    num_kept = max(1, len(grant.admitted_group_ids))
    if len(entering.group_ids) > num_kept:
        message = _with_entering(message, num_kept)
    return _PLAN + message.SerializeToString()


def _with_entering(message: pb.Plan, num_groups: int) -> pb.Plan:
    cut = pb.Plan()
    cut.CopyFrom(message)
    entering = cut.entering
    num_sequences = sum(entering.num_sequences[:num_groups])
    del entering.group_ids[num_groups:]
    del entering.num_sequences[num_groups:]
    for column in (entering.sequence_ids, entering.num_tokens, entering.prefix_hashes):
        del column[num_sequences:]
    return cut


class StateCodec:
    """The ``Codec`` of ``ports``."""

    def encode_opening(self, opening: Opening) -> bytes:
        shape = opening.shape
        return _OPENING + _OPENING_HEAD.pack(
            opening.epoch,
            shape.block_size,
            shape.num_device_blocks,
            shape.num_host_blocks,
            shape.watermark_blocks,
            opening.forget_sequences,
        )

    def encode_command(self, command: Command) -> bytes:
        if isinstance(command, PinPrefix):
            return _PIN + _LENGTH.pack(command.expires_at_ms) + command.prefix_hash
        if isinstance(command, UnpinPrefix):
            return _UNPIN + command.prefix_hash
        return _RESET

    def decode_entry(self, content: bytes) -> Opening | Plan | Command:
        kind = content[:1]
        try:
            if kind == _PLAN:
                return protobuf.plan_of(pb.Plan.FromString(content[1:]))
            if kind == _OPENING:
                epoch, *shape, forget = _OPENING_HEAD.unpack(content[1:])
                return Opening(epoch, PoolShape(*shape), forget)
            if kind == _PIN:
                (expires_at_ms,) = _LENGTH.unpack_from(content, 1)
                return PinPrefix(PrefixHash(content[1 + _LENGTH.size :]), expires_at_ms)
            if kind == _UNPIN:
                return UnpinPrefix(PrefixHash(content[1:]))
            if kind == _RESET:
                return ResetPrefixCache()
        except (DecodeError, MalformedPlan, struct.error) as error:
            raise JournalCorrupt(f"an entry of kind {kind!r} cannot be read: {error}") from error
        raise JournalCorrupt(f"an entry has the unknown kind {kind!r}")

    def encode_snapshot(self, snapshot: PoolStateSnapshot) -> bytes:
        return b"".join(part for section in _sections(snapshot) for part in (_LENGTH.pack(len(section)), section))

    def decode_snapshot(self, content: bytes) -> PoolStateSnapshot:
        try:
            return _read(_Reader(content))
        except (DecodeError, struct.error, ValueError, IndexError) as error:
            raise JournalCorrupt(f"a snapshot of {len(content)} bytes cannot be read: {error}") from error


# --- Writing ---


def _sections(snapshot: PoolStateSnapshot) -> Iterator[bytes]:
    space, grant = snapshot.space, snapshot.last_grant
    yield _MAGIC
    yield _numbers("Q", [snapshot.epoch, space is not None, grant is not None])
    yield _numbers("Q", [getattr(snapshot.counters, name) for name in COUNTER_NAMES])
    if grant is not None:
        yield protobuf.grant_message(grant).SerializeToString()
    if space is None:
        return
    shape = space.shape
    yield _numbers(
        "Q",
        [
            shape.block_size,
            shape.num_device_blocks,
            shape.num_host_blocks,
            shape.watermark_blocks,
            space.last_step_id,
        ],
    )
    for pool in (space.device, space.host):
        yield from (_little(pool.following), _little(pool.preceding), _little(pool.counts), _little(pool.last_used))
        yield _numbers("Q", [pool.num_free])
    yield _numbers("I", [block for block, known in enumerate(space.device_hashes) if known is not None])
    yield b"".join(known for known in space.device_hashes if known is not None)
    yield _numbers("I", space.host_hashes)
    yield b"".join(space.host_hashes.values())
    for tables in (space.device_tables, space.host_tables):
        yield _numbers("Q", [table.sequence_id for table in tables])
        yield _numbers("I", [table.num_slots for table in tables])
        yield _numbers("I", [table.num_promised_blocks for table in tables])
        yield _numbers("I", [len(table.blocks) for table in tables])
        yield _numbers("I", [block for table in tables for block in table.blocks])
    yield from _parent_sections(space)
    yield _numbers("Q", [pin.expires_at_ms for pin in space.pins])
    yield b"".join(pin.prefix_hash for pin in space.pins)
    yield _numbers("I", [len(pin.blocks) for pin in space.pins])
    yield _numbers("I", [block for pin in space.pins for block in pin.blocks])


def _parent_sections(space: BlockSpaceSnapshot) -> Iterator[bytes]:
    """The parent of each block with a hash: the block that holds it, or where none does, the hash itself."""
    block_of = {known: block for block, known in enumerate(space.device_hashes) if known is not None}
    parents = [space.device_parents[block] for block, known in enumerate(space.device_hashes) if known is not None]
    lost = [parent for parent in parents if parent is not None and parent not in block_of]
    yield _numbers("i", [_NO_PARENT if parent is None else block_of.get(parent, _LOST) for parent in parents])
    yield b"".join(lost)


def _numbers(typecode: str, values: Iterable[int]) -> bytes:
    return _little(array(typecode, values))


def _little(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


# --- Reading ---


class _Reader:
    """Takes sections off the front."""

    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        self._offset = 0

    def section(self) -> memoryview:
        (length,) = _LENGTH.unpack_from(self._content, self._offset)
        start = self._offset + _LENGTH.size
        if start + length > len(self._content):
            raise ValueError("it ends within a section")
        self._offset = start + length
        return self._content[start : self._offset]

    def numbers(self, typecode: str) -> "array[int]":
        numbers = array(typecode)
        numbers.frombytes(self.section())
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers

    def hashes(self) -> Sequence[PrefixHash]:
        joined = bytes(self.section())
        return [PrefixHash(joined[start : start + HASH_BYTES]) for start in range(0, len(joined), HASH_BYTES)]


def _read(reader: _Reader) -> PoolStateSnapshot:
    if reader.section() != _MAGIC:
        raise ValueError("it does not begin as one")
    epoch, has_space, has_grant = reader.numbers("Q")
    counters = Counters(*reader.numbers("Q"))
    grant = protobuf.grant_of(pb.Grant.FromString(bytes(reader.section()))) if has_grant else None
    return PoolStateSnapshot(epoch, _read_space(reader) if has_space else None, grant, counters)


def _read_space(reader: _Reader) -> BlockSpaceSnapshot:
    *shape, last_step_id = reader.numbers("Q")
    device, host = _read_pool(reader), _read_pool(reader)
    hashes: list[PrefixHash | None] = [None] * len(device.counts)
    hashed = reader.numbers("I")
    for block_id, prefix_hash in zip(hashed, reader.hashes(), strict=True):
        hashes[block_id] = prefix_hash
    host_blocks = [BlockId(block_id) for block_id in reader.numbers("I")]
    return BlockSpaceSnapshot(
        shape=PoolShape(*shape),
        last_step_id=last_step_id,
        device=device,
        host=host,
        device_hashes=hashes,
        host_hashes=dict(zip(host_blocks, reader.hashes(), strict=True)),
        device_tables=_read_tables(reader),
        host_tables=_read_tables(reader),
        device_parents=_read_parents(reader, hashed, hashes),
        pins=_read_pins(reader),
    )


def _read_parents(
    reader: _Reader, hashed: Iterable[int], hashes: Sequence[PrefixHash | None]
) -> list[PrefixHash | None]:
    parents: list[PrefixHash | None] = [None] * len(hashes)
    numbers, lost = reader.numbers("i"), iter(reader.hashes())
    for block_id, parent in zip(hashed, numbers, strict=True):
        if parent >= 0:
            parents[block_id] = hashes[parent]
        elif parent == _LOST:
            parents[block_id] = next(lost)
    return parents


def _read_pins(reader: _Reader) -> list[Pin]:
    expiries, hashes = reader.numbers("Q"), reader.hashes()
    num_blocks, blocks = reader.numbers("I"), iter(reader.numbers("I"))
    return [
        Pin(prefix_hash, tuple(BlockId(block_id) for block_id in islice(blocks, count)), expires_at_ms)
        for expires_at_ms, prefix_hash, count in zip(expiries, hashes, num_blocks, strict=True)
    ]


def _read_pool(reader: _Reader) -> BlockPoolSnapshot:
    following, preceding = reader.numbers("i"), reader.numbers("i")
    counts, last_used = reader.numbers("I"), reader.numbers("I")
    return BlockPoolSnapshot(following, preceding, counts, last_used, reader.numbers("Q")[0])


def _read_tables(reader: _Reader) -> list[TableSnapshot]:
    sequence_ids = reader.numbers("Q")
    num_slots, num_promised, num_blocks, blocks = (reader.numbers("I") for _ in range(4))
    tables, start = [], 0
    for index, sequence_id in enumerate(sequence_ids):
        end = start + num_blocks[index]
        tables.append(TableSnapshot(SequenceId(sequence_id), num_slots[index], num_promised[index], blocks[start:end]))
        start = end
    return tables
