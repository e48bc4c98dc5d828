"""What can never be served, said at once and with the numbers."""

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.core.order import SchedulingPolicy
from scheduler.core.request import Request
from scheduler.errors import RequestRefused


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds that a model and a pool put on one request."""

    max_model_len: int  # tokens, prompt and output together
    vocab_size: int
    block_size: int  # tokens
    num_device_blocks: int
    max_num_seqs: int  # sequences that run at once
    policy: SchedulingPolicy = SchedulingPolicy.FCFS

    def check(self, request: Request) -> None:
        """Accepts the request or says why it can never be served.

        Raises:
            RequestRefused: Names the field, its value and the limit.

        """
        self._check_prompt(request.prompt_token_ids)
        self._check_stop(request)
        self._check_priority(request.priority)
        self._check_sequences(request)
        self._check_length(len(request.prompt_token_ids), request.stop.max_tokens)
        self._check_blocks(request)

    def max_output_tokens(self, num_prompt_tokens: int, num_choices: int) -> int:
        """The largest ``max_tokens`` with which a request fits the context and the pool; at least 1."""
        num_shared = num_prompt_tokens // self.block_size
        num_own = (self.num_device_blocks - num_shared) // num_choices
        num_slots = (num_shared + num_own) * self.block_size
        return max(1, min(self.max_model_len - num_prompt_tokens, num_slots + 1 - num_prompt_tokens))

    def _check_prompt(self, token_ids: tuple[int, ...]) -> None:
        if not token_ids:
            raise RequestRefused("prompt is empty: it must have at least one token", param="prompt")
        if min(token_ids) >= 0 and max(token_ids) < self.vocab_size:
            return
        position, token_id = next((i, t) for i, t in enumerate(token_ids) if not 0 <= t < self.vocab_size)
        raise RequestRefused(
            f"prompt has token id {token_id} at position {position}, "
            f"but the vocabulary has ids 0 to {self.vocab_size - 1}",
            param="prompt",
        )

    def _check_stop(self, request: Request) -> None:
        if request.stop.max_tokens < 0:
            raise RequestRefused(f"max_tokens is {request.stop.max_tokens}, but must be at least 0", param="max_tokens")
        if "" in request.stop.stop:
            raise RequestRefused("stop has an empty string: it would match everywhere", param="stop")
        rules = request.sampling.rules
        self._check_vocabulary("stop_token_ids", request.stop.stop_token_ids)
        self._check_vocabulary("allowed_token_ids", rules.allowed_token_ids)
        self._check_vocabulary("logit_bias", [token_id for token_id, _ in rules.logit_bias])

    def _check_vocabulary(self, param: str, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            if not 0 <= token_id < self.vocab_size:
                raise RequestRefused(
                    f"{param} has token id {token_id}, but the vocabulary has ids 0 to {self.vocab_size - 1}",
                    param=param,
                )

    def _check_priority(self, priority: int) -> None:
        if priority and self.policy is SchedulingPolicy.FCFS:
            raise RequestRefused(
                f"priority is {priority}, but must be 0: the server's scheduling policy is {self.policy.value}",
                param="priority",
                code="no_priorities",
            )

    def _check_sequences(self, request: Request) -> None:
        what, param = ("choices", "n") if request.beams is None else ("beams", "beam_width")
        if not 1 <= request.num_sequences <= self.max_num_seqs:
            raise RequestRefused(
                f"the request asks for {request.num_sequences} {what} at once, but must ask for 1 to "
                f"{self.max_num_seqs}, the number of sequences that may run at once",
                param=param,
                code=f"too_many_{what}",
            )
        if request.beams is not None and not 1 <= request.num_choices <= request.beams.width:
            raise RequestRefused(
                f"n is {request.num_choices}, but must be 1 to {request.beams.width}, the number of beams", param="n"
            )
        if request.beams is not None and not request.stop.max_tokens:
            raise RequestRefused("max_tokens is 0, but must be at least 1 for a beam search", param="max_tokens")

    def _check_length(self, num_prompt_tokens: int, max_tokens: int) -> None:
        num_tokens = num_prompt_tokens + max_tokens
        if num_tokens > self.max_model_len:
            raise RequestRefused(
                f"the context is {self.max_model_len} tokens, but the request needs {num_tokens}: "
                f"{num_prompt_tokens} in the prompt and max_tokens {max_tokens}",
                param="max_tokens" if num_prompt_tokens < self.max_model_len else "prompt",
                code="context_length_exceeded",
            )

    def _check_blocks(self, request: Request) -> None:
        """Sequences share the full blocks of the prompt, and each has its own after those (paper §4.4)."""
        num_prompt_tokens, max_tokens = len(request.prompt_token_ids), request.stop.max_tokens
        num_shared = num_prompt_tokens // self.block_size
        # The last token's KV is never written: nothing consumes it.
        num_own = -(-max(num_prompt_tokens, num_prompt_tokens + max_tokens - 1) // self.block_size) - num_shared
        num_blocks = num_shared + request.num_sequences * num_own
        if num_blocks > self.num_device_blocks:
            what = "choices" if request.beams is None else "beams"
            num_seqs = request.num_sequences
            choices = f" and {num_seqs} {what} of {num_own} blocks each" if num_seqs > 1 else ""
            raise RequestRefused(
                f"the request needs {num_blocks} blocks of {self.block_size} tokens ({num_prompt_tokens} in the prompt "
                f"and max_tokens {max_tokens}{choices}), but the pool has {self.num_device_blocks}",
                param="max_tokens",
                code="pool_too_small",
            )
