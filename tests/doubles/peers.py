"""The scheduler's ports over the doubles, with faults on demand."""

import asyncio
from collections.abc import Sequence

from doubles.model import VOCAB_SIZE, ModelDouble
from doubles.pool import Pool
from scheduler.core.chat import PromptPart
from scheduler.core.steps import Grant, Plan, Step, StepResult
from scheduler.errors import MemoryUnavailable, StepRefused, WorkerUnavailable
from scheduler.ports import PoolOpened, WorkerDescription


class WorkerPeer:
    """A worker that can be killed, restarted, frozen, or made to lose its answers.

    It computes one step after the other. What follows a refused step is refused too.
    """

    def __init__(self, num_blocks: int = 32, block_size: int = 4, num_host_blocks: int = 16) -> None:
        self.num_blocks, self.block_size, self.num_host_blocks = num_blocks, block_size, num_host_blocks
        self.epoch = 1
        self.model = ModelDouble(block_size)
        self.alive = True
        self.is_open = False
        self.lose_answers = 0
        self.refuse_steps = 0
        self.refuses_until_attached = False
        self.turn = asyncio.Lock()
        self.cannot_compute: tuple[int, ...] = ()
        self.steps: list[int] = []
        self.num_in_hand = self.most_in_hand = self.num_attached = 0
        self.thaw = asyncio.Event()
        self.thaw.set()

    def kill(self) -> None:
        self.alive = self.is_open = False

    def restart(self) -> None:
        self.kill()
        self.epoch += 1
        self.model = ModelDouble(self.block_size)
        self.alive = True

    async def attach(self, *, forget_sequences: bool) -> WorkerDescription:
        if not self.alive:
            raise WorkerUnavailable("the worker is dead")
        if forget_sequences:
            self.model.forget_sequences()
        self.is_open = True
        self.num_attached += 1
        self.refuses_until_attached = False
        return WorkerDescription(
            worker_id="w0",
            epoch=self.epoch,
            last_step_id=self.model.last_step_id,
            block_size=self.block_size,
            num_device_blocks=self.num_blocks,
            num_host_blocks=self.num_host_blocks,
            block_bytes=1,
            max_model_len=256,
            vocab_size=VOCAB_SIZE,
            model_name="checksum",
            model_fingerprint=b"checksum",
            dtype="int",
            kernel_backend="none",
        )

    async def execute(self, step: Step) -> StepResult:
        self.num_in_hand += 1
        self.most_in_hand = max(self.most_in_hand, self.num_in_hand)
        try:
            async with self.turn:
                return await self._execute(step)
        finally:
            self.num_in_hand -= 1

    async def _execute(self, step: Step) -> StepResult:
        await self.thaw.wait()
        if not self.is_open:
            raise WorkerUnavailable("the worker is dead")
        if self.refuses_until_attached:
            raise StepRefused("the step before was refused")
        if self.refuse_steps:
            self.refuse_steps -= 1
            self.refuses_until_attached = True
            raise StepRefused("step refused")
        if self.cannot_compute:
            sequence_ids, self.cannot_compute = self.cannot_compute, ()
            self.refuses_until_attached = True
            raise StepRefused("not finite", sequence_ids)
        assert step.epoch == self.epoch
        self.steps.append(step.step_id)
        result = self.model.execute(step)
        await asyncio.sleep(0)
        if self.lose_answers:
            self.lose_answers -= 1
            self.is_open = False
            raise WorkerUnavailable("the answer was lost")
        return result

    async def close(self) -> None:
        self.is_open = False


class MemoryPeer:
    """A kvmanager that can be killed with or without its journal, or made to lose its answers."""

    def __init__(self, watermark: int = 0) -> None:
        self.watermark = watermark
        self.pool: Pool | None = None
        self.epoch = 0
        self.alive = True
        self.is_open = False
        self.lose_answers = 0
        self.plans: list[int] = []

    def kill(self, *, journal_lost: bool = False) -> None:
        self.alive = self.is_open = False
        if journal_lost:
            self.epoch = 0

    def restart(self) -> None:
        self.alive = True

    async def open(self, worker: WorkerDescription, *, forget_sequences: bool) -> PoolOpened:
        if not self.alive:
            raise MemoryUnavailable("the kvmanager is dead")
        restored = self.pool is not None and worker.epoch == self.epoch
        if self.pool is None or not restored:
            self.pool = Pool(worker.num_device_blocks, worker.block_size, self.watermark, worker.num_host_blocks)
            self.epoch = worker.epoch
        if forget_sequences:
            self.pool.forget_sequences()
        self.is_open = True
        return PoolOpened(self.epoch, self.pool.last_step_id, self.watermark, restored)

    async def grant(self, plan: Plan) -> Grant:
        if not self.is_open or self.pool is None:
            raise MemoryUnavailable("the kvmanager is dead")
        self.plans.append(plan.step_id)
        grant = self.pool.grant(plan)
        await asyncio.sleep(0)
        if self.lose_answers:
            self.lose_answers -= 1
            self.is_open = False
            raise MemoryUnavailable("the answer was lost")
        return grant

    async def close(self) -> None:
        self.is_open = False


class LetterTokenizer:
    """One character a token; the last id is the end of a sequence."""

    vocab_size = VOCAB_SIZE
    eos_token_ids = frozenset({VOCAB_SIZE - 1})

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) - 32 for character in text]

    def encode_parts(self, parts: Sequence[PromptPart]) -> list[int]:
        return [token_id for part in parts for token_id in self.encode(part.text)]

    def tokens(self, token_ids: Sequence[int]) -> list[str]:
        return [chr(32 + token_id) for token_id in token_ids]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(chr(32 + token_id) for token_id in token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([32 + token_id])

    def is_special(self, token_id: int) -> bool:
        return token_id in self.eos_token_ids
