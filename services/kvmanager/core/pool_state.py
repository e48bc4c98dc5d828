"""One pool over its epochs: a state machine that the journal can replay."""

from collections import deque
from dataclasses import dataclass, replace

from kvmanager.core.block_space import BlockSpace, BlockSpaceSnapshot
from kvmanager.core.commands import Command, PinPrefix, UnpinPrefix
from kvmanager.core.history import NUM_REMEMBERED_STEPS, Counters, StepRecord, Tally, record_of
from kvmanager.core.plan import Grant, Plan, PoolShape
from kvmanager.errors import BrokenPromise, PoolNotOpen


@dataclass(frozen=True, slots=True)
class Opening:
    """A worker's memory, as its caller names it, and what the caller remembers of it."""

    epoch: int  # changes whenever the worker's KV memory is lost
    shape: PoolShape
    forget_sequences: bool = False


@dataclass(frozen=True, slots=True)
class PoolStateSnapshot:
    """Everything a ``PoolState`` knows."""

    epoch: int
    space: BlockSpaceSnapshot | None
    last_grant: Grant | None
    counters: Counters


class PoolState:
    """Openings and plans in, grants out. Deterministic, so the same entries give the same state.

    The last grant is stored: a repeated step gets the same answer and changes nothing. ``history`` has the last
    steps of this epoch that were applied here, oldest first; it is not part of the state.
    """

    __slots__ = ("_last_grant", "_space", "_tally", "epoch", "history")

    def __init__(self) -> None:
        self.epoch = 0
        self.history: deque[StepRecord] = deque(maxlen=NUM_REMEMBERED_STEPS)
        self._tally = Tally(Counters())
        self._space: BlockSpace | None = None
        self._last_grant: Grant | None = None

    @property
    def space(self) -> BlockSpace:
        """The memory of this epoch. Raises ``PoolNotOpen`` before the first opening."""
        if self._space is None:
            raise PoolNotOpen("the pool has not been opened")
        return self._space

    @property
    def last_step_id(self) -> int:
        """The last step that was applied in this epoch, 0 if none."""
        return 0 if self._space is None else self._space.last_step_id

    @property
    def is_open(self) -> bool:
        """Whether the pool was ever opened."""
        return self._space is not None

    @property
    def counters(self) -> Counters:
        """What the steps of this epoch added up to."""
        return self._tally.freeze()

    def check_opening(self, opening: Opening) -> None:
        """Raises ``BrokenPromise`` if the pool has another size than was said before in the same epoch."""
        if self._space is None or opening.epoch != self.epoch:
            return
        known = replace(self._space.shape, watermark_blocks=opening.shape.watermark_blocks)
        if known != opening.shape:
            raise BrokenPromise(f"open: epoch {self.epoch} has {self._space.shape}, not {opening.shape}")

    def open(self, opening: Opening) -> bool:
        """Keeps what is known if the epoch is the known one, else forgets every block. Says whether it was known."""
        self.check_opening(opening)
        if self._space is None or opening.epoch != self.epoch:
            self.epoch = opening.epoch
            self._space = BlockSpace.empty(opening.shape)
            self._last_grant = None
            self._tally = Tally(Counters())
            self.history.clear()
            return False
        self._space.change_watermark(opening.shape.watermark_blocks)
        if opening.forget_sequences:
            self._space.forget_sequences()
            self._last_grant = None
        return True

    def stored_answer(self, step_id: int) -> Grant | None:
        """The grant of the last step, if ``step_id`` repeats it."""
        grant = self._last_grant
        return grant if grant is not None and grant.step_id == step_id else None

    def apply(self, plan: Plan) -> Grant:
        """Carries the next plan out. Raises as ``BlockSpace.apply``, and ``PoolNotOpen``."""
        grant = self._last_grant = self.space.apply(plan)
        record = record_of(plan, grant, self.space.last_trace)
        self.history.append(record)
        self._tally.add(record)
        return grant

    def administer(self, command: Command) -> None:
        """Carries an administrator's command out. Raises ``BrokenPromise`` and then has changed nothing."""
        if isinstance(command, PinPrefix):
            self.space.pin(command.prefix_hash, command.expires_at_ms)
        elif isinstance(command, UnpinPrefix):
            self.space.unpin(command.prefix_hash)
        else:
            self.space.reset_prefix_cache()

    def replay(self, entry: Opening | Plan | Command) -> None:
        """Carries out what a journal says was carried out."""
        if isinstance(entry, Opening):
            self.open(entry)
        elif isinstance(entry, Plan):
            self.apply(entry)
        else:
            self.administer(entry)

    def snapshot(self) -> PoolStateSnapshot:
        """A copy of everything."""
        space = None if self._space is None else self._space.snapshot()
        return PoolStateSnapshot(self.epoch, space, self._last_grant, self.counters)

    @classmethod
    def restore(cls, snapshot: PoolStateSnapshot) -> "PoolState":
        """The state that the snapshot was taken of."""
        state = cls()
        state.epoch = snapshot.epoch
        state._space = None if snapshot.space is None else BlockSpace.restore(snapshot.space)
        state._last_grant = snapshot.last_grant
        state._tally = Tally(snapshot.counters)
        return state
