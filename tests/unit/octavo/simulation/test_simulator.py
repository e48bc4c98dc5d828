"""A server on a virtual clock: known answers, and the code that it runs."""

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

import kvmanager
import scheduler
from kvmanager.core.block_space import BlockSpace
from octavo.errors import TraceUnusable
from octavo.simulation import simulator
from octavo.simulation.cost import CostModel
from octavo.simulation.knee import find_knee
from octavo.simulation.lengths import Dataset, Length
from octavo.simulation.machines import Server
from octavo.simulation.outcome import Outcome
from octavo.simulation.settings import Settings
from octavo.simulation.simulator import Simulation
from octavo.simulation.spaces import Pool, SpaceName
from octavo.simulation.workload import Arrival, Workload, trace
from scheduler.core.scheduler import Scheduler

NOTHING = CostModel(**dict.fromkeys((field.name for field in fields(CostModel)), 0.0))
SECOND_A_STEP = replace(NOTHING, overhead_s=1.0)
SMALL = Pool(Server.OPT_13B, block_size=4, max_model_len=64, num_slots=64)


def arrivals(*lengths: tuple[int, int], gap_s: float = 0.0, **more: object) -> list[Arrival]:
    return [Arrival(index * gap_s, Length(*length), **more) for index, length in enumerate(lengths)]  # type: ignore[arg-type]


@pytest.fixture
def simulate(monkeypatch):
    """Runs on a small pool; every step takes a second, whatever it does."""
    monkeypatch.setattr(simulator, "make_cost", lambda *_: SECOND_A_STEP)

    def run(space: SpaceName, requests: list[Arrival], pool: Pool = SMALL, **settings: object) -> Outcome:
        return Simulation(Settings(space, pool, **settings), requests).run()  # type: ignore[arg-type]

    return run


# ---- the code that serves


def test_the_scheduler_and_the_memory_are_those_of_the_services():
    simulation = Simulation(Settings(SpaceName.PAGED, SMALL), [])
    services = {"scheduler": Path(scheduler.__file__).parent, "kvmanager": Path(kvmanager.__file__).parent}
    assert type(simulation._scheduler) is Scheduler
    assert type(simulation._space) is BlockSpace
    for owner in (simulation._scheduler, simulation._space, *map(_baseline, (SpaceName.MAX, SpaceName.FT))):
        module = sys.modules[type(owner).__module__]
        service = module.__name__.partition(".")[0]
        assert module.__name__.startswith(f"{service}.core.")
        assert Path(str(module.__file__)).is_relative_to(services[service] / "core")


def _baseline(space: SpaceName) -> object:
    return Simulation(Settings(space, SMALL), [])._space


# ---- known answers


def test_a_request_takes_a_step_per_token(simulate):
    outcome = simulate(SpaceName.PAGED, arrivals((5, 8)))
    assert (outcome.num_steps, outcome.simulated_s) == (8, 8.0)
    assert outcome.normalized_latency_s == 1.0


def test_latency_counts_from_the_arrival(simulate):
    """The second request comes within the third step, begins with the fourth and ends with the seventh."""
    outcome = simulate(SpaceName.PAGED, arrivals((5, 8), (5, 4), gap_s=2.5))
    assert outcome.normalized_latency_s == pytest.approx((8.0 / 8 + (7.0 - 2.5) / 4) / 2)


def test_paging_runs_side_by_side_what_reservation_runs_one_after_the_other(simulate):
    requests = arrivals((5, 8), (5, 8))
    paged, reserved = simulate(SpaceName.PAGED, requests), simulate(SpaceName.MAX, requests)
    assert (paged.num_batched, paged.simulated_s) == (2.0, 8.0)
    assert (reserved.num_batched, reserved.simulated_s) == (1.0, 16.0)


def test_a_static_batch_returns_all_its_requests_with_the_last_of_them(simulate):
    pool = replace(SMALL, num_slots=128)
    outcome = simulate(SpaceName.FT, arrivals((5, 2), (5, 8), (5, 4)), pool)
    assert outcome.simulated_s == 12.0, "two places, then the third request alone"
    assert outcome.normalized_latency_s == pytest.approx((8 / 2 + 8 / 8 + 12 / 4) / 3)


def test_who_gives_way_is_computed_again(simulate):
    outcome = simulate(SpaceName.PAGED, arrivals((20, 30), (20, 30)))
    assert outcome.num_preemptions == 1
    assert outcome.num_requests == 2


def test_the_four_parts_of_memory_are_all_of_it(simulate):
    outcome = simulate(SpaceName.POW2, arrivals((5, 9), (5, 9)), replace(SMALL, num_slots=128))
    waste = outcome.waste
    assert waste.filled + waste.reserved + waste.internal + waste.external == pytest.approx(1.0)
    assert min(waste.filled, waste.reserved, waste.internal, waste.external) > 0.0


def test_outputs_of_one_prompt_share_its_full_blocks(simulate):
    requests = arrivals((8, 9), num_sequences=4)
    outcome = simulate(SpaceName.PAGED, requests, looks_at_sharing=True)
    assert outcome.num_batched_sequences == pytest.approx((1 + 8 * 4) / 9)
    assert outcome.shared_share > 0.3


def test_beams_run_to_their_last_token(simulate):
    outcome = simulate(SpaceName.PAGED, arrivals((8, 6), num_sequences=3, is_beam_search=True))
    assert (outcome.num_requests, outcome.num_steps) == (1, 6)


@pytest.mark.parametrize("space", [SpaceName.ORACLE, SpaceName.FT])
def test_baselines_keep_every_output_and_beam_in_a_place_of_its_own(simulate, space):
    pool = replace(SMALL, num_slots=256)
    for is_beam_search in (False, True):
        requests = arrivals((8, 6), (8, 6), num_sequences=3, is_beam_search=is_beam_search)
        assert simulate(space, requests, pool).num_requests == 2


def test_a_prefix_is_computed_once_where_it_is_cached(simulate):
    requests = arrivals((21, 4), (21, 4), gap_s=10.0, num_shared_tokens=16)
    hits = []
    for caches_prefixes in (False, True):
        run = Simulation(Settings(SpaceName.PAGED, SMALL, caches_prefixes=caches_prefixes), requests)
        run.run()
        assert isinstance(run._space, BlockSpace)
        hits.append(run._space.usage.num_cached_device_blocks)
    assert hits[0] == 0 < hits[1]


@pytest.mark.parametrize(("space", "length", "num_sequences"), [("paged", (40, 30), 1), ("max", (5, 5), 2)])
def test_a_request_that_never_fits_is_refused_with_the_numbers(space, length, num_sequences):
    requests = arrivals(length, num_sequences=num_sequences)
    with pytest.raises(TraceUnusable, match=f"a request of {length[0]} prompt tokens .* never fits the 16 blocks"):
        Simulation(Settings(SpaceName(space), SMALL), requests)


def test_what_sequences_share_is_read_once_from_memory(monkeypatch):
    """Three outputs of a prompt of two blocks: its 8 slots are read once from memory and twice from the cache."""
    requests = arrivals((8, 4), num_sequences=3)
    seconds = []
    for constant in ("kv_token_s", "shared_kv_token_s"):
        monkeypatch.setattr(simulator, "make_cost", lambda *_, name=constant: replace(NOTHING, **{name: 1.0}))
        seconds.append(Simulation(Settings(SpaceName.PAGED, SMALL), requests).run().simulated_s)
    own = 3 * (1 + 2 + 3)  # slots that each output reads of its own in the three steps after the prompt's
    assert seconds == [3 * 8 + own, 3 * 2 * 8]


# ---- steps that are taken in one


@pytest.mark.parametrize("space", list(SpaceName))
@pytest.mark.parametrize(("dataset", "rate"), [(Dataset.SHAREGPT, 1.6), (Dataset.ALPACA, 20.0)])
def test_jumps_change_nothing(space, dataset, rate):
    requests = trace(Workload(dataset, duration_s=30.0 if dataset is Dataset.SHAREGPT else 4.0), rate)
    pool = Pool(Server.OPT_13B, num_slots=3000)
    single, jumping = (Simulation(Settings(space, pool, jumps=jumps), requests).run() for jumps in (False, True))
    for name in ("normalized_latency_s", "simulated_s", "num_steps", "num_batched", "num_preemptions"):
        assert getattr(single, name) == getattr(jumping, name), name


def test_jumps_change_nothing_where_a_prefix_is_shared():
    requests = trace(Workload(Dataset.TRANSLATION, duration_s=4.0, num_shared_tokens=80), 6.0)
    settings = Settings(SpaceName.PAGED, Pool(Server.OPT_13B), caches_prefixes=True)
    single, jumping = (Simulation(replace(settings, jumps=jumps), requests).run() for jumps in (False, True))
    assert single.simulated_s == jumping.simulated_s
    assert single.normalized_latency_s == jumping.normalized_latency_s


def test_a_run_that_is_sure_to_exceed_the_bound_is_given_up():
    requests = trace(Workload(Dataset.ALPACA, duration_s=10.0), 20.0)
    settings = Settings(SpaceName.MAX, Pool(Server.OPT_13B))
    given_up = Simulation(settings, requests).run(give_up_at_s=0.5)
    whole = Simulation(settings, requests).run()
    assert given_up.is_saturated
    assert not whole.is_saturated
    assert whole.normalized_latency_s > 0.5
    assert given_up.simulated_s < whole.simulated_s


# ---- the search for the knee


@pytest.mark.parametrize("guess", [0.2, 2.9, 3.1, 40.0])
def test_the_knee_is_found_from_either_side(guess):
    def run(rate: float) -> Outcome:
        outcome = Simulation(Settings(SpaceName.PAGED, SMALL), []).run()
        return replace(outcome, normalized_latency_s=0.1 if rate < 3.0 else 7.0)

    assert find_knee(run, guess, tolerance=0.01) == pytest.approx(3.0, rel=0.01)
