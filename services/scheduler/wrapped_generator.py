"""A ``Generator`` around another one, for what is added to the engine without being part of it."""

from collections.abc import AsyncGenerator, Sequence

from scheduler.core.request import OutputDelta, Request, RequestId
from scheduler.ports import Generator, Readiness


class WrappedGenerator:
    """Implements ``Generator`` by handing everything on; whoever adds something overrides what it concerns."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    @property
    def readiness(self) -> Readiness:
        """The engine's."""
        return self._generator.readiness

    @property
    def max_model_len(self) -> int:
        """The engine's."""
        return self._generator.max_model_len

    def max_output_tokens(self, num_prompt_tokens: int, num_choices: int) -> int:
        """The engine's."""
        return self._generator.max_output_tokens(num_prompt_tokens, num_choices)

    def check(self, request: Request) -> None:
        """As the engine."""
        self._generator.check(request)

    def check_together(self, requests: Sequence[Request]) -> None:
        """As the engine."""
        self._generator.check_together(requests)

    def generate(self, request: Request) -> AsyncGenerator[OutputDelta, None]:
        """As the engine."""
        return self._generator.generate(request)

    def abort(self, request_id: RequestId) -> bool:
        """As the engine."""
        return self._generator.abort(request_id)

    async def drain(self, deadline_s: float) -> None:
        """As the engine."""
        await self._generator.drain(deadline_s)
