"""The memory simulator: the same queue over two ways to hand out the same slots.

Both ways are one way: a request takes pieces of equal size as it grows. A contiguous stretch is a piece as long as the
longest request that must be served, so one is enough; a page is a small piece, so that the next one is taken when the
last is full. What differs is how much lies reserved and empty (PagedAttention, §3.1 and §4.3).

Each step, in this order:

1. The queue is served first come, first served, until its head does not fit. A request needs room for its prompt and,
   after a pause, for the tokens that it had made.
2. Each running request, the longest admitted first, adds one token. Where a piece is missing, the request that arrived
   last among those running is paused: its pieces are freed, and it stands at the head of the queue.
3. Filled and taken slots are counted.
4. Requests with all their tokens leave, and their pieces are free.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from octavo.memory_simulator.workload import Lengths, Workload

FREE = -1


class Filling(StrEnum):
    """What a slot holds."""

    PROMPT = "p"
    ANSWER = "a"
    RESERVED = "r"  # taken, and empty
    NOTHING = "."


@dataclass(frozen=True, slots=True)
class Frame:
    """The memory after one step's tokens, before finished requests leave. Requests are numbered from 0."""

    owners: tuple[int, ...]  # [slots], FREE where nobody has the slot
    fillings: tuple[Filling, ...]  # [slots]
    running: tuple[int, ...]  # in the order in which they were admitted
    waiting: tuple[int, ...]  # the head first
    admitted: tuple[int, ...]
    paused: tuple[int, ...]
    finished: tuple[int, ...]

    @property
    def num_filled(self) -> int:
        """Slots that hold a token."""
        return sum(filling in (Filling.PROMPT, Filling.ANSWER) for filling in self.fillings)

    @property
    def num_taken(self) -> int:
        """Slots that nobody else can have."""
        return sum(owner != FREE for owner in self.owners)

    @property
    def utilization(self) -> float:
        """Share of the taken slots that hold a token; 1 where none is taken."""
        return self.num_filled / self.num_taken if self.num_taken else 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """What one way to hand out memory made of the workload."""

    piece: int  # slots
    frames: tuple[Frame, ...]  # one for each step

    @property
    def num_steps(self) -> int:
        """Steps until the last request was served."""
        return len(self.frames)

    @property
    def utilization(self) -> float:
        """Mean over the steps."""
        return sum(frame.utilization for frame in self.frames) / len(self.frames) if self.frames else 1.0

    @property
    def most_running(self) -> int:
        """Requests that were served at once."""
        return max((len(frame.running) for frame in self.frames), default=0)

    @property
    def num_pauses(self) -> int:
        """How often a request gave its memory back."""
        return sum(len(frame.paused) for frame in self.frames)


def simulate(workload: Workload, piece: int) -> Run:
    """Serves the workload with pieces of ``piece`` slots, which must divide the memory and hold any request in it."""
    simulator = _Simulator(workload, piece)
    frames = []
    while simulator.is_busy:
        frames.append(simulator.step())
    return Run(piece, tuple(frames))


@dataclass(slots=True)
class _Request:
    number: int
    lengths: Lengths
    num_tokens: int  # prompt and answer so far
    pieces: list[int] = field(default_factory=list)


class _Simulator:
    def __init__(self, workload: Workload, piece: int) -> None:
        self._piece = piece
        self._num_slots = workload.slots
        self._free = deque(range(workload.slots // piece))
        self._waiting = deque(
            _Request(number, lengths, lengths.prompt) for number, lengths in enumerate(workload.requests)
        )
        self._running: list[_Request] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._running)

    def step(self) -> Frame:
        admitted = self._admit()
        paused = self._grow()
        finished = [request for request in self._running if request.num_tokens == request.lengths.total]
        frame = self._picture(admitted, paused, finished)
        for request in finished:
            self._running.remove(request)
            self._release(request)
        return frame

    def _admit(self) -> list[_Request]:
        admitted = []
        while self._waiting:
            request = self._waiting[0]
            if self._num_missing(request, request.num_tokens) > len(self._free):
                break
            self._waiting.popleft()
            self._take(request)
            self._running.append(request)
            admitted.append(request)
        return admitted

    def _grow(self) -> list[_Request]:
        paused: list[_Request] = []
        for request in list(self._running):
            if request not in paused and self._make_room(request, request.num_tokens + 1, paused):
                request.num_tokens += 1
                self._take(request)
        return paused

    def _make_room(self, request: _Request, num_tokens: int, paused: list[_Request]) -> bool:
        """Pauses requests until one more token fits; ``False`` if that ended with the request itself."""
        while self._num_missing(request, num_tokens) > len(self._free):
            victim = max(self._running, key=lambda running: running.number)
            self._pause(victim)
            paused.append(victim)
            if victim is request:
                return False
        return True

    def _pause(self, victim: _Request) -> None:
        self._running.remove(victim)
        self._release(victim)
        self._waiting.appendleft(victim)

    def _num_missing(self, request: _Request, num_tokens: int) -> int:
        return -(-num_tokens // self._piece) - len(request.pieces)

    def _take(self, request: _Request) -> None:
        request.pieces += [self._free.popleft() for _ in range(self._num_missing(request, request.num_tokens))]

    def _release(self, request: _Request) -> None:
        self._free.extend(request.pieces)
        request.pieces.clear()

    def _picture(self, admitted: Sequence[_Request], paused: Sequence[_Request], finished: Sequence[_Request]) -> Frame:
        owners = [FREE] * self._num_slots
        fillings = [Filling.NOTHING] * self._num_slots
        for request in self._running:
            for position, slot in enumerate(self._slots(request)):
                owners[slot] = request.number
                fillings[slot] = _filling(request, position)
        return Frame(
            tuple(owners),
            tuple(fillings),
            running=_numbers(self._running),
            waiting=_numbers(self._waiting),
            admitted=_numbers(admitted),
            paused=_numbers(paused),
            finished=_numbers(finished),
        )

    def _slots(self, request: _Request) -> list[int]:
        size = self._piece
        return [slot for piece in request.pieces for slot in range(piece * size, (piece + 1) * size)]


def _filling(request: _Request, position: int) -> Filling:
    if position >= request.num_tokens:
        return Filling.RESERVED
    return Filling.PROMPT if position < request.lengths.prompt else Filling.ANSWER


def _numbers(requests: Sequence[_Request] | deque[_Request]) -> tuple[int, ...]:
    return tuple(request.number for request in requests)
