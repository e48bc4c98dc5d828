"""The two connections of a replica, and whether they still mean the same memory."""

from dataclasses import dataclass

from scheduler.ports import Memory, PoolOpened, Worker, WorkerDescription


@dataclass(frozen=True, slots=True)
class FreshMemory:
    """Both peers hold no sequence of ours: whatever ran must be computed again."""

    worker: WorkerDescription
    pool: PoolOpened


class Link:
    """Opens what is not open, and finds out whether the KV memory survived.

    It did if the worker is of the epoch we know and the kvmanager answered exactly the steps that we remember. If not,
    both are told to forget all sequences.
    """

    def __init__(self, worker: Worker, memory: Memory) -> None:
        self.worker = worker
        self.memory = memory
        self._description: WorkerDescription | None = None
        self._epoch: int | None = None  # of the memory that is scheduled
        self._forget = True

    @property
    def is_open(self) -> bool:
        """Whether both connections are up."""
        return self.worker.is_open and self.memory.is_open

    @property
    def worker_id(self) -> str:
        """Names the worker and its pool; empty before it was attached to."""
        return self._description.worker_id if self._description else ""

    def distrust(self) -> None:
        """Has the next ``connect`` begin afresh: the peers forget all sequences."""
        self._forget = True

    async def connect(self, last_step_ids: tuple[int, ...]) -> FreshMemory | None:
        """Brings both connections up; ``None`` if the memory is as it was after one of ``last_step_ids``.

        Raises:
            WorkerUnavailable, MemoryUnavailable: Try again later; nothing is lost.

        """
        description = self._description
        if description is None or self._forget or not self.worker.is_open:
            description = self._description = await self.worker.attach(forget_sequences=self._forget)
        fresh = self._forget or description.epoch != self._epoch
        if not fresh and self.memory.is_open:
            return None
        pool = await self.memory.open(description, forget_sequences=fresh)
        if not fresh:
            if pool.restored and pool.last_step_id in last_step_ids:
                return None
            self.distrust()
            return await self.connect(last_step_ids)
        self._epoch = description.epoch
        self._forget = False
        return FreshMemory(description, pool)

    async def close(self) -> None:
        """Ends both connections."""
        await self.worker.close()
        await self.memory.close()
