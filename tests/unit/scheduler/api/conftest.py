"""The API over a generator that keeps the Protocol's promises without a model."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest

from doubles.administrator import AdministratorDouble
from scheduler.api.app import create_app
from scheduler.api.completions import CompletionService
from scheduler.api.models import ServedModel
from scheduler.api.server import StopSignals, listen, serve
from scheduler.core.chat import PromptPart
from scheduler.core.limits import Limits
from scheduler.core.queue_limits import QueueLimits
from scheduler.core.request import FinishReason, OutputDelta, Request, RequestId, TokenLogprob
from scheduler.errors import NotReady, RequestRefused, SchedulerError
from scheduler.ports import Generator, Readiness, Tokenizer

EOS = 0


class ByteTokenizer:
    """Token ids are bytes."""

    vocab_size = 256
    eos_token_ids = frozenset({EOS})

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self.threads.append(threading.current_thread())
        return list(text.encode())

    def encode_parts(self, parts: Sequence[PromptPart]) -> list[int]:
        return [token_id for part in parts for token_id in part.text.encode()]

    def tokens(self, token_ids: Sequence[int]) -> list[str]:
        return [f"<{token_id}>" for token_id in token_ids]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return bytes(token_ids).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])

    def is_special(self, token_id: int) -> bool:
        return token_id in self.eos_token_ids


def tops(token_id: int, num_top: int) -> tuple[tuple[int, float], ...]:
    """The letters from the token's own on are ever less probable."""
    return tuple((token_id + i, -float(i)) for i in range(num_top))


def prompt_scores(request: Request) -> tuple[TokenLogprob, ...]:
    num_top = request.num_prompt_logprobs
    if num_top is None:
        return ()
    first, *rest = request.prompt_token_ids
    return (TokenLogprob(first, None), *(TokenLogprob(token, -0.5, tops(token + 1, num_top)) for token in rest))


class EchoStream(AsyncGenerator[OutputDelta, None]):
    """Counts as running from its acceptance to its end or its closing, read or not."""

    def __init__(self, generator: "EchoGenerator", request: Request) -> None:
        self._generator = generator
        self._request = request
        self._deltas = generator.deltas(request)

    async def asend(self, value: None) -> OutputDelta:
        try:
            return await self._deltas.asend(value)
        except BaseException:
            self._generator.running.discard(self._request.request_id)
            raise

    async def athrow(self, *error) -> OutputDelta:
        return await self._deltas.athrow(*error)

    async def aclose(self) -> None:
        self._generator.running.discard(self._request.request_id)
        await self._deltas.aclose()


class EchoGenerator:
    """Repeats the prompt, one token a delta, until ``max_tokens``; a gate can hold it before each token.

    Each further choice shifts it by one letter.
    """

    def __init__(self) -> None:
        self.readiness = Readiness(ready=True)
        self.limits = Limits(max_model_len=64, vocab_size=256, block_size=4, num_device_blocks=12, max_num_seqs=8)
        self.accepted: list[Request] = []
        self.running: set[RequestId] = set()
        self.aborted: set[RequestId] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.max_accepted: int | None = None
        self.queue = QueueLimits()
        self.refusal: SchedulerError | None = None
        self.failure_after: dict[int, SchedulerError] = {}
        self.num_cached_tokens = 0
        self.best_choice = 0
        self.finish_reason = FinishReason.LENGTH

    @property
    def max_model_len(self) -> int:
        return self.limits.max_model_len

    def max_output_tokens(self, num_prompt_tokens: int, num_choices: int) -> int:
        return self.limits.max_output_tokens(num_prompt_tokens, num_choices)

    def check(self, request: Request) -> None:
        if not self.readiness.ready:
            raise NotReady(self.readiness.reason)
        self.limits.check(request)

    def check_together(self, requests: Sequence[Request]) -> None:
        if excess := self.queue.excess(requests):
            raise RequestRefused(f"prompt: {excess}", param="prompt")

    def generate(self, request: Request) -> AsyncGenerator[OutputDelta, None]:
        self.check(request)
        if len(self.accepted) == self.max_accepted:
            raise self.refusal
        self.accepted.append(request)
        self.running.add(request.request_id)
        return EchoStream(self, request)

    async def deltas(self, request: Request) -> AsyncGenerator[OutputDelta, None]:
        if not request.stop.max_tokens:
            for choice in range(request.num_choices):
                yield OutputDelta(choice, "", (), FinishReason.LENGTH, prompt_logprobs=prompt_scores(request))
        for i in range(request.stop.max_tokens):
            await self.passed(request.request_id)
            if request.request_id in self.aborted:
                for choice in range(request.num_choices):
                    yield OutputDelta(choice, "", (), FinishReason.ABORT)
                return
            await asyncio.sleep(0)
            if i in self.failure_after:
                raise self.failure_after[i]
            token_id = request.prompt_token_ids[i % len(request.prompt_token_ids)]
            reason = self.finish_reason if i == request.stop.max_tokens - 1 else None
            for choice in range(request.num_choices):
                yield OutputDelta(
                    choice_index=choice,
                    text=chr(token_id + choice),
                    token_ids=(token_id + choice,),
                    finish_reason=reason,
                    num_cached_tokens=self.num_cached_tokens,
                    logprobs=(-abs(choice - self.best_choice),),
                    tops=(tops(token_id, request.sampling.num_top_logprobs),),
                    prompt_logprobs=prompt_scores(request) if i == 0 else (),
                )

    async def passed(self, request_id: RequestId) -> None:
        while not self.gate.is_set() and request_id not in self.aborted:  # noqa: ASYNC110 - whichever comes first
            await asyncio.sleep(0.001)

    def abort(self, request_id: RequestId) -> bool:
        if request_id in self.running:
            self.aborted.add(request_id)
        return request_id in self.running

    async def drain(self, deadline_s: float) -> None:
        self.readiness = Readiness(ready=False, reason="draining")
        async with asyncio.timeout(deadline_s):
            while self.running:  # noqa: ASYNC110 - simple, and only a test waits
                await asyncio.sleep(0.005)


def service_of(generator: Generator, tokenizer: Tokenizer) -> CompletionService:
    return CompletionService(generator, tokenizer, ServedModel("echo", 1_700_000_000, "fp_test"), max_body_bytes=20_000)


@pytest.fixture
async def generator() -> EchoGenerator:
    return EchoGenerator()


@pytest.fixture
def tokenizer() -> ByteTokenizer:
    return ByteTokenizer()


@pytest.fixture
def service(generator, tokenizer) -> CompletionService:
    return service_of(generator, tokenizer)


@pytest.fixture
async def client(service) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(service, AdministratorDouble()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        yield client


@pytest.fixture
def complete(client):
    async def post(**body) -> httpx.Response:
        return await client.post("/v1/completions", json={"prompt": "abc", **body})

    return post


@pytest.fixture
def serving(generator, tokenizer):
    """A real server on a free loopback port; yields the port, the stop signals and the task that serves."""

    @asynccontextmanager
    async def run(drain_timeout_s: float = 5.0):
        app = create_app(service_of(generator, tokenizer), AdministratorDouble())
        signals = StopSignals()
        listener = listen("127.0.0.1", 0)
        task = asyncio.create_task(serve(app, listener, generator, signals, drain_timeout_s))
        try:
            yield listener.getsockname()[1], signals, task
        finally:
            signals.stop.set()
            signals.hurry.set()
            await asyncio.wait_for(task, 10)

    return run
