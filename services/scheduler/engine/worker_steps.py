"""The steps that a worker has in hand."""

import asyncio
from collections import deque

from scheduler.core.steps import Step, StepResult
from scheduler.ports import Worker


class WorkerSteps:
    """Sends steps, and has their results in the order of sending."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._answers: deque[asyncio.Task[StepResult]] = deque()

    def __len__(self) -> int:
        """Steps whose result was not taken."""
        return len(self._answers)

    def send(self, step: Step) -> None:
        """Has the worker compute ``step`` after those that it has."""
        self._answers.append(asyncio.create_task(self._worker.execute(step)))

    async def take(self) -> StepResult:
        """Waits for the result of the oldest step. Raises what ``Worker.execute`` raised; then the step stays."""
        result = await self._answers[0]
        self._answers.popleft()
        return result

    async def drop(self) -> None:
        """Waits for nothing any more: the connection that the answers were to come by is gone."""
        for answer in self._answers:
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)
        self._answers.clear()
