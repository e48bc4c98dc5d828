"""How much may wait before new requests are turned away."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler.core.request import Request
from scheduler.core.sequence import SequenceGroup


@dataclass(frozen=True, slots=True)
class Overflow:
    """Why a request may not wait, and how many groups have to leave the queue before it may."""

    message: str
    num_groups: int


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Counts each choice or beam as a sequence, and a prompt's tokens once. Whatever fits memory may wait alone."""

    max_sequences: int = 1024
    max_tokens: int | None = None  # of prompts

    def overflow(self, waiting: Iterable[SequenceGroup], requests: Sequence[Request]) -> Overflow | None:
        """What is too much if a call's ``requests`` wait behind ``waiting``, which are in the order of leaving."""
        groups = [group.request for group in waiting]
        sequences = [waiter.num_sequences for waiter in groups]
        more = _num_sequences(requests)
        if num := _num_to_leave(sequences, more, self.max_sequences):
            return Overflow(
                f"{sum(sequences)} sequences wait already, and with the {more} of this request they "
                f"would be more than {self.max_sequences}, which is the limit",
                num,
            )
        tokens = [len(waiter.prompt_token_ids) for waiter in groups] if self.max_tokens is not None else []
        more = _num_tokens(requests)
        if num := _num_to_leave(tokens, more, self.max_tokens or 0):
            return Overflow(
                f"prompts with {sum(tokens)} tokens wait already, and with the {more} of this "
                f"request they would be more than {self.max_tokens}, which is the limit",
                num,
            )
        return None

    def excess(self, requests: Sequence[Request]) -> str:
        """Why a call's several ``requests`` can never wait together; empty if they can."""
        if len(requests) > 1 and (num := _num_sequences(requests)) > self.max_sequences:
            return (
                f"{len(requests)} prompts with {num} sequences in one call, but at most {self.max_sequences} may wait"
            )
        if len(requests) > 1 and self.max_tokens is not None and (num := _num_tokens(requests)) > self.max_tokens:
            return f"{len(requests)} prompts with {num} tokens in one call, but at most {self.max_tokens} may wait"
        return ""


def _num_sequences(requests: Iterable[Request]) -> int:
    return sum(request.num_sequences for request in requests)


def _num_tokens(requests: Iterable[Request]) -> int:
    return sum(len(request.prompt_token_ids) for request in requests)


def _num_to_leave(amounts: list[int], more: int, limit: int) -> int:
    """How many of the first amounts have to go before ``more`` fits the limit."""
    excess = sum(amounts) + more - limit
    for index, amount in enumerate(amounts):
        if excess <= 0:
            return index
        excess -= amount
    return len(amounts)
