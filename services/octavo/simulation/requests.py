"""Arrivals as the scheduler's requests, and the scheduler that takes them."""

from collections.abc import Iterable

from octavo.errors import TraceUnusable
from octavo.simulation.settings import Settings
from octavo.simulation.spaces import SpaceName
from octavo.simulation.workload import Arrival
from scheduler.core.limits import Limits
from scheduler.core.prefix_hash import PrefixDomain
from scheduler.core.request import BeamParams, Request, RequestId, StopConditions
from scheduler.core.scheduler import Scheduler
from scheduler.core.shape import MemoryShape, SchedulerConfig

OUTPUT_TOKEN = 2
"""The first of the ids that outputs are made of: choice ``i`` begins with the ``i``-th."""

_SHARED_TOKEN, _OWN_TOKEN = 0, 1
_FIRST_NUMBER = 64  # ids from here on tell requests apart
_VOCAB_SIZE = 2**31


def request_of(arrival: Arrival, number: int) -> Request:
    """What the scheduler is asked. The first token of a prompt that is not shared is its number: no two are equal."""
    num_own = arrival.length.num_prompt_tokens - arrival.num_shared_tokens
    prompt = (_SHARED_TOKEN,) * arrival.num_shared_tokens + (_FIRST_NUMBER + number,) + (_OWN_TOKEN,) * (num_own - 1)
    return Request(
        request_id=RequestId(str(number)),
        prompt_token_ids=prompt,
        stop=StopConditions(max_tokens=arrival.num_output_tokens),
        num_choices=1 if arrival.is_beam_search else arrival.num_sequences,
        beams=BeamParams(arrival.num_sequences) if arrival.is_beam_search else None,
    )


def check_fits(arrivals: Iterable[Arrival], settings: Settings) -> None:
    """Refuses a trace with a request that the pool could never hold.

    Raises:
        TraceUnusable: Names the request and the pool.

    """
    pool = settings.pool
    for arrival in arrivals:
        num_slots = arrival.num_prompt_tokens + arrival.num_sequences * (arrival.num_output_tokens + pool.block_size)
        if num_slots > pool.num_blocks * pool.block_size or not settings.can_hold(arrival.num_sequences):
            raise TraceUnusable(
                f"a request of {arrival.num_prompt_tokens} prompt tokens and {arrival.num_sequences} outputs of "
                f"{arrival.num_output_tokens} never fits the {pool.num_blocks} blocks of {pool.block_size} slots "
                f"as the space {settings.space.value} keeps them"
            )


def scheduler_for(settings: Settings) -> Scheduler:
    """The scheduler of a server."""
    pool = settings.pool
    budget = settings.max_num_batched_tokens
    if settings.space is SpaceName.FT:  # its batches are computed whole
        budget = max(budget, pool.num_blocks * pool.block_size)
    limits = Limits(
        max_model_len=pool.max_model_len,
        vocab_size=_VOCAB_SIZE,
        block_size=pool.block_size,
        num_device_blocks=pool.num_blocks,
        max_num_seqs=settings.max_num_seqs,
    )
    config = SchedulerConfig(budget, settings.max_num_seqs, settings.preemption_mode)
    return Scheduler(config, MemoryShape(1, 0, limits, PrefixDomain(b"simulated")))
