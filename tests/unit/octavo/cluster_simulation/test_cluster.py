"""A simulated cluster against answers known by hand, the real memory step by step, and what routing promises."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvmanager.core.block_space import BlockSpace
from kvmanager.core.plan import (
    EnteringGroups,
    GroupId,
    Plan,
    PoolShape,
    Preemption,
    RunningGroups,
    SealedBlocks,
    SequenceId,
)
from octavo.cluster_simulation import cluster as simulated
from octavo.cluster_simulation.cluster import Cluster, ClusterShape
from octavo.cluster_simulation.servers import ServerName, cost_of
from octavo.cluster_simulation.sweep import Sweep
from octavo.cluster_simulation.trace import TraceRequest, read_trace
from octavo.errors import TraceUnusable
from octavo.simulation.cost import StepShape
from scheduler.core.routing import RoutingPolicy

TRACE = read_trace(Path(__file__).parents[3] / "data" / "traces" / "mooncake_conversation.jsonl")
COST = cost_of(ServerName.LLAMA2_70B)
BLOCK = 512


def shape(num_workers=1, policy="round-robin", **fields):
    return ClusterShape(num_workers, RoutingPolicy(policy), **fields)


def request(time_s, num_prompt_tokens, num_output_tokens, first_id=None):
    num_ids = -(-num_prompt_tokens // BLOCK)
    ids = () if first_id is None else tuple(range(first_id, first_id + num_ids))
    return TraceRequest(time_s, num_prompt_tokens, num_output_tokens, ids)


def ran(trace, cluster_shape, num_copies=1):
    cluster = Cluster(cluster_shape, trace, num_copies)
    return cluster, cluster.run()


def prompt_s(num_tokens, *, num_decodes=0, num_context=0):
    shape = StepShape(num_tokens + num_decodes, 1 + num_decodes, 1, num_context, num_attended_pairs=num_tokens**2 // 2)
    return COST.step_s(shape)


def decode_s(*contexts):
    return COST.step_s(StepShape(len(contexts), len(contexts), 0, sum(contexts)))


def test_one_request_takes_its_prompt_and_a_step_for_each_further_token():
    _, outcome = ran([request(0, 1000, 4)], shape())
    assert outcome.ttft_s.p50 == pytest.approx(prompt_s(1000))
    assert outcome.latency_s.p50 == pytest.approx(prompt_s(1000) + decode_s(1001) + decode_s(1002) + decode_s(1003))
    assert (outcome.busy_share, outcome.mean_queue) == (pytest.approx(1), 0)


def test_a_long_prompt_is_computed_in_chunks_of_the_token_budget():
    _, outcome = ran([request(0, 1500, 1)], shape(max_num_batched_tokens=1000))
    second = COST.step_s(StepShape(500, 1, 1, 0, num_attended_pairs=500 * 1000 + 500 * 500 // 2))
    assert outcome.ttft_s.p50 == pytest.approx(prompt_s(1000) + second)


def test_of_three_requests_at_two_workers_the_third_waits_for_the_first_ones_prompt():
    trace = [request(0, 1000, 3), request(0, 1000, 1), request(0, 600, 1)]
    cluster, outcome = ran(trace, shape(2))
    first, third = prompt_s(1000), prompt_s(600, num_decodes=1, num_context=1001)
    assert outcome.ttft_s.p50 == pytest.approx(first)
    assert outcome.latency_s.p99 == pytest.approx(first + third + decode_s(1002), rel=0.02)
    busy_s = [worker.tally.busy_s for worker in cluster.workers]
    assert busy_s == [pytest.approx(first + third + decode_s(1002)), pytest.approx(first)]
    assert [worker.tally.waited_s for worker in cluster.workers] == [pytest.approx(first), 0]
    assert outcome.busy_balance.max_over_mean == pytest.approx(2 * busy_s[0] / sum(busy_s))


def test_an_arrival_joins_after_the_step_that_runs():
    trace = [request(0, 600, 100), request(1.0, 600, 1)]
    _, outcome = ran(trace, shape())
    ends = [prompt_s(600)]
    while ends[-1] < 1.0:
        ends.append(ends[-1] + decode_s(600 + len(ends)))
    joined = prompt_s(600, num_decodes=1, num_context=600 + len(ends))
    assert outcome.ttft_s.p99 == pytest.approx(ends[-1] - 1.0 + joined, rel=0.01)


def test_the_second_time_a_prompt_comes_its_full_blocks_are_cached():
    _, outcome = ran([request(0, 1100, 2, first_id=0), request(60, 1100, 2, first_id=0)], shape())
    assert outcome.hit_rate == 2 * BLOCK / 2200


def test_copies_of_a_trace_hit_only_their_own_prefixes():
    trace = [request(0, 1100, 2, first_id=0), request(120, 1100, 2, first_id=0)]
    _, once = ran(trace, shape())
    _, thrice = ran(trace, shape(), num_copies=3)
    assert (thrice.num_requests, thrice.hit_rate) == (6, once.hit_rate)


@pytest.mark.parametrize("policy", list(RoutingPolicy))
def test_every_request_ends_once_and_every_memory_is_sound(policy):
    cluster, outcome = ran(TRACE, shape(4, policy, num_slots=130 * BLOCK))
    assert outcome.num_requests == len(TRACE)
    for worker in cluster.workers:
        assert isinstance(worker.memory.space, BlockSpace)
        assert worker.memory.space.check() == []
        assert (worker.memory.num_used_blocks, worker.memory.space.num_sequences) == (0, 0)


def test_what_the_router_knows_of_caches_is_what_is_in_them():
    cluster, outcome = ran(TRACE, shape(4, "prefix-aware", num_slots=130 * BLOCK))
    known = cluster.router.prefixes
    caches = [worker.memory.space.device.tier.cache for worker in cluster.workers]
    hashes = set().union(*(dict(cache) for cache in caches))
    assert len(known) == len(hashes) > 0
    for prefix_hash in hashes:
        holders = {index for index, cache in enumerate(caches) if cache.block_of(prefix_hash) is not None}
        assert set(known.longest([prefix_hash], 99)) == holders
    assert outcome.hit_rate > 0


def one_after_the_other(trace, pool):
    """Cached tokens of each request, and the hashes at the end: the memory driven a token at a time."""
    space = BlockSpace.empty(pool)
    cached = []

    def step(**fields):
        return space.apply(Plan(space.last_step_id + 1, **fields))

    for number, one in enumerate(trace):
        ids, hashes = [SequenceId(number)], one.prefix_hashes(pool.block_size)
        groups = EnteringGroups(2**31, [GroupId(number)], [1], ids, [one.num_prompt_tokens], [hashes])
        cached.append(step(entering=groups).num_present_tokens[0])
        first = cached[-1] // pool.block_size
        sealed = SealedBlocks(ids * (len(hashes) - first), range(first, len(hashes)), hashes[first:])
        for _ in range(one.num_output_tokens - 1):
            running = RunningGroups([GroupId(number)], [1], [Preemption.RECOMPUTE], ids, [1])
            step(sealed=sealed, running=running)
            sealed = SealedBlocks()
        step(sealed=sealed, released=ids)
    return cached, {prefix_hash for prefix_hash in space.snapshot().device_hashes if prefix_hash}


@pytest.mark.parametrize("block_size", [512, 128])
def test_hits_and_what_stays_cached_equal_the_real_memory_step_by_step(block_size):
    """Requests come so far apart that each is alone; the pool is so small that most of what is cached is evicted."""
    trace = [replace(one, time_s=1000.0 * index) for index, one in enumerate(TRACE[:40])]
    cluster, outcome = ran(trace, shape(block_size=block_size, num_slots=250 * BLOCK))
    (worker,) = cluster.workers
    cached, hashes = one_after_the_other(trace, worker.memory.space.shape)
    assert worker.tally.num_cached_tokens == sum(cached) > 0
    assert {known for known, _ in worker.memory.space.device.tier.cache} == hashes
    assert len(hashes) < len(set().union(*(one.prefix_hashes(block_size) for one in trace)))
    assert outcome.num_preemptions == 0


def test_who_gives_way_is_computed_again_and_still_ends():
    trace = [request(0, 1000, 600, first_id=0), request(0, 1000, 600, first_id=10), request(0, 1000, 600, first_id=20)]
    cluster, outcome = ran(trace, shape(block_size=16, num_slots=4096))
    assert outcome.num_preemptions > 0
    assert outcome.num_requests == 3
    assert cluster.workers[0].memory.space.check() == []


def test_a_full_pool_with_prompts_in_the_middle_of_their_chunks_goes_on():
    trace = [request(0, 2000, 900, first_id=10 * index) for index in range(6)]
    cluster, outcome = ran(trace, shape(block_size=16, num_slots=6400, max_num_batched_tokens=300))
    assert outcome.num_preemptions > 0
    assert outcome.num_requests == 6
    assert cluster.workers[0].memory.space.check() == []


def test_a_request_that_never_fits_is_refused_with_the_numbers():
    with pytest.raises(TraceUnusable, match=r"1000 prompt and 5 output tokens never fits the 1 blocks of 512 slots"):
        Cluster(shape(num_slots=600), [request(0, 1000, 5)])


def test_prefix_aware_routing_finds_more_than_round_robin_and_answers_sooner():
    outcomes = {policy: ran(TRACE, shape(4, policy))[1] for policy in ("round-robin", "prefix-aware")}
    assert outcomes["prefix-aware"].hit_rate > 1.5 * outcomes["round-robin"].hit_rate
    assert outcomes["prefix-aware"].ttft_s.p50 < outcomes["round-robin"].ttft_s.p50


def test_round_robin_finds_less_the_more_workers_there_are_and_prefix_aware_does_not():
    sweep = Sweep(shape(), [2, 16], [RoutingPolicy.ROUND_ROBIN, RoutingPolicy.PREFIX_AWARE])
    found = {(outcome.policy.value, outcome.num_workers): outcome.hit_rate for outcome in sweep.run(TRACE)}
    assert found["round-robin", 16] < 0.5 * found["round-robin", 2]
    assert found["prefix-aware", 16] > 0.8 * found["prefix-aware", 2]


def test_least_loaded_shares_uneven_work_more_evenly_than_round_robin():
    trace = [request(0.5 * index, 20_000 if index % 4 == 0 else 600, 5) for index in range(80)]
    queues = {policy: ran(trace, shape(4, policy))[1].mean_queue for policy in ("round-robin", "least-loaded")}
    assert queues["least-loaded"] < 0.5 * queues["round-robin"]


def test_a_sweep_gives_a_larger_cluster_more_copies():
    sweep = Sweep(shape(), [4, 8, 10], [RoutingPolicy.ROUND_ROBIN], workers_per_copy=4)
    assert [sweep.copies_for(size) for size in (2, 4, 8, 10)] == [1, 1, 2, 2]
    outcomes = list(sweep.run(TRACE[:20]))
    assert [(outcome.num_workers, outcome.num_requests) for outcome in outcomes] == [(4, 20), (8, 40), (10, 40)]


def test_the_same_seed_gives_the_same_cluster():
    def once(seed):
        return ran(TRACE[:60], shape(8, "two-choices", seed=seed))[1]

    assert once(1) == once(1)
    assert once(1) != once(2)


def test_the_pool_leaves_the_watermark_of_the_kvmanager():
    assert shape(num_slots=512_000).pool == PoolShape(512, 1000, 0, int(simulated.WATERMARK * 1000))
