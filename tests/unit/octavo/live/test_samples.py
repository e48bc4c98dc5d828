"""Where the KV slots are while a cluster is measured."""

import json

import pytest

from octavo.live.samples import Look, Sample, Samples, Slots, baseline_looker, paged_looker


class FakeAdmin:
    """Three blocks of 4 slots that are held, one of them by two sequences."""

    def pages(self, path, field, **params):
        assert (path, field, params) == ("pools/default/blocks", "blocks", {"state": "used"})
        return iter(
            [{"num_filled_slots": filled, "reference_count": count} for filled, count in ((4, 2), (4, 1), (1, 1))]
        )


def sample(running, waiting, filled, reserved=0):
    return Sample(running, waiting, Look(Slots(100, filled, reserved, internal=0), 4, 3))


def test_only_what_is_seen_while_requests_wait_counts_as_load():
    samples = Samples([sample(2, 3, filled=80, reserved=10), sample(4, 1, filled=90), sample(1, 0, filled=5)])
    assert samples.share("filled") == pytest.approx(0.85)
    assert samples.share("filled", "allocated") == pytest.approx(170 / 180)
    assert samples.share("external") == pytest.approx(0.10)
    assert samples.mean_running == 3


def test_without_anybody_waiting_all_that_runs_counts():
    samples = Samples([sample(2, 0, filled=40), sample(0, 0, filled=0)])
    assert samples.share("filled") == pytest.approx(0.4)


def test_nothing_seen_is_nothing_used():
    assert Samples().share("filled") == 0
    assert Samples().mean_running == 0
    assert Samples().shared_share == 0


def test_sharing_saves_what_tables_name_and_memory_does_not_hold():
    assert Samples([sample(1, 0, filled=9), sample(1, 0, filled=9)]).shared_share == pytest.approx(0.25)


def test_a_paged_pool_is_seen_block_by_block():
    look = paged_looker(FakeAdmin(), num_slots=40, block_size=4)()
    assert look.slots == Slots(40, filled=9, reserved=3, internal=0)
    assert look.slots.external == 28
    assert (look.num_logical_blocks, look.num_physical_blocks) == (4, 3)


def test_a_baseline_tells_its_slots_itself(tmp_path):
    told = tmp_path / "occupancy.json"
    told.write_text(json.dumps({"num_slots": 64, "filled": 9, "reserved": 7, "internal": 16}))
    assert baseline_looker(told)().slots == Slots(64, 9, 7, 16)
