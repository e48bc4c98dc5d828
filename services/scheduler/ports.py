"""What the scheduler needs from the world, in its own words."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler.core.chat import ChatMessage, PromptPart
from scheduler.core.constraint import Grammar, TokenConstraint
from scheduler.core.request import OutputDelta, Request, RequestId
from scheduler.core.steps import Grant, Plan, Step, StepResult


@dataclass(frozen=True, slots=True)
class WorkerDescription:
    """What a worker says of itself when a client attaches."""

    worker_id: str
    epoch: int
    last_step_id: int
    block_size: int  # tokens
    num_device_blocks: int
    num_host_blocks: int
    block_bytes: int
    max_model_len: int  # tokens
    vocab_size: int
    model_name: str
    model_fingerprint: bytes
    dtype: str
    kernel_backend: str
    phase_names: tuple[str, ...] = ()  # of a step's computation; empty where the worker does not tell


@dataclass(frozen=True, slots=True)
class PoolOpened:
    """What the kvmanager says of a pool that was opened."""

    epoch: int
    last_step_id: int
    watermark_blocks: int
    restored: bool


class Memory(Protocol):
    """The kvmanager, for one pool.

    Methods raise ``MemoryUnavailable`` when the connection broke; after that ``open`` must be called again. A plan
    whose answer was lost is sent again with the same step id and gets the stored answer. A plan that breaks a promise
    raises ``StepRefused``.
    """

    @property
    def is_open(self) -> bool:
        """Whether the connection was opened and has not broken since."""

    async def open(self, worker: WorkerDescription, *, forget_sequences: bool) -> PoolOpened: ...

    async def grant(self, plan: Plan) -> Grant: ...

    async def close(self) -> None: ...


class Worker(Protocol):
    """One gpuworker.

    Methods raise ``WorkerUnavailable`` when the connection broke; after that ``attach`` must be called again. A step
    whose answer was lost is sent again with the same step id and gets the stored answer. A step that breaks a promise
    raises ``StepRefused``.
    """

    @property
    def is_open(self) -> bool:
        """Whether the worker was attached to and the connection has not broken since."""

    async def attach(self, *, forget_sequences: bool) -> WorkerDescription: ...

    async def execute(self, step: Step) -> StepResult:
        """What the step gave. A step may be asked for while the one before computes: answers come in order."""

    async def close(self) -> None: ...


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``, with the special tokens that the model's tokenizer adds to a prompt."""

    def encode_parts(self, parts: Sequence[PromptPart]) -> list[int]:
        """Token ids of a rendered prompt; special tokens are those that its pieces have, except in literal ones."""

    def tokens(self, token_ids: Sequence[int]) -> list[str]:
        """The tokens as the vocabulary writes them; empty for an id without one."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ``token_ids`` without special tokens. Incomplete UTF-8 at the end comes out as U+FFFD.

        A leading space stays: the text is what these tokens add after other tokens.
        """

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to a text, which may be a part of a character; a special token's name in UTF-8."""

    def is_special(self, token_id: int) -> bool:
        """Whether ``decode`` leaves a token out as special."""


class ChatTemplate(Protocol):
    """How a model wants a conversation to be written down."""

    def render(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool, continue_final_message: bool
    ) -> tuple[PromptPart, ...]:
        """The prompt, in pieces: with the beginning of an answer, or open at the end of the last message.

        Takes up to seconds for hostile input, so call it in a thread where the input is large. Raises
        ``RequestRefused`` where the template does not accept the messages.
        """


class GrammarCompiler(Protocol):
    """From a grammar to what holds an output to it."""

    def compile(self, grammar: Grammar) -> TokenConstraint:
        """The beginning of an output. Takes milliseconds, so call it in a thread. Raises ``RequestRefused``."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether tokens can advance now, and if not, what is waited for."""

    ready: bool
    reason: str = ""


class Generator(Protocol):
    """The engine as the API sees it."""

    @property
    def readiness(self) -> Readiness: ...

    @property
    def max_model_len(self) -> int:
        """Most tokens, prompt and output together, that one sequence may have. 0 before the first worker attached."""

    def max_output_tokens(self, num_prompt_tokens: int, num_choices: int) -> int:
        """The largest ``max_tokens`` with which a request can be served; at least 1. Raises ``NotReady``."""

    def check(self, request: Request) -> None:
        """Raises what ``generate`` would raise for this request now, ``RequestRefused`` or ``NotReady``.

        Changes nothing. A call with several prompts is checked whole before any of them is accepted.
        """

    def check_together(self, requests: Sequence[Request]) -> None:
        """Raises ``RequestRefused`` if the requests of a call can never wait together, ``QueueFull`` if not now."""

    def generate(self, request: Request) -> AsyncGenerator[OutputDelta, None]:
        """Accepts the request at once and yields what it produces.

        Closing the generator early aborts the request and frees its blocks. Raises ``RequestRefused`` (bad value,
        can never fit), ``QueueFull`` or ``NotReady`` when it is called.
        """

    def abort(self, request_id: RequestId) -> bool:
        """Ends a request with ``FinishReason.ABORT``; ``False`` if there is none of that id."""

    async def drain(self, deadline_s: float) -> None:
        """Refuses new requests and returns when the accepted ones ended or the deadline passed."""
