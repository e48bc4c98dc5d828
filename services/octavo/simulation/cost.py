"""Seconds that a GPU server takes for a step: a roofline of what the step reads, multiplies and is told.

    step = overhead + √(weights² + products²) + KV read + requests + prompts + all-reduces + block moves

Weights and products use different units of the GPU but not at the same time throughout a step, hence the rounded
corner of the roofline. Every constant stands in ``data/machines.json`` with its source; none belongs to one curve.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step does."""

    num_tokens: int  # computed, prompts and decodes
    num_requests: int  # vLLM's first sampler loops over them, whatever the number of their outputs
    num_prompts: int  # of them, sequences that compute a prompt
    num_context_tokens: int  # KV slots that attention reads, shared ones once
    num_shared_tokens: int = 0  # KV slots that it reads again for other sequences, from the cache of the GPU
    num_attended_pairs: int = 0  # of prompts: query and key positions, all prompts together
    num_swapped_blocks: int = 0
    num_copied_blocks: int = 0


@dataclass(frozen=True, slots=True)
class CostModel:
    """The constants of one model on one server, ready to add up."""

    weights_s: float  # to read the weights once
    token_s: float  # to multiply one token with them
    kv_token_s: float  # to read the KV of one token
    shared_kv_token_s: float  # to read it once more for another sequence
    pair_s: float  # attention products of one query and key position
    overhead_s: float  # per step
    request_s: float  # per request in a step: sampling and input preparation
    prompt_s: float  # per prompt in a step
    all_reduce_s: float  # per step, however small
    all_reduce_token_s: float
    swap_block_s: float  # per block that crosses to or from the host
    copy_block_s: float  # per block copied on write

    def step_s(self, step: StepShape) -> float:
        """Seconds from the grant to the sampled tokens."""
        return (
            self.overhead_s
            + math.hypot(self.weights_s, step.num_tokens * self.token_s)
            + step.num_context_tokens * self.kv_token_s
            + step.num_shared_tokens * self.shared_kv_token_s
            + step.num_attended_pairs * self.pair_s
            + step.num_requests * self.request_s
            + step.num_prompts * self.prompt_s
            + self.all_reduce_s
            + step.num_tokens * self.all_reduce_token_s
            + step.num_swapped_blocks * self.swap_block_s
            + step.num_copied_blocks * self.copy_block_s
        )
