"""Rates at which several systems have the same latency."""

import pytest

from octavo.live.baselines import rates
from octavo.live.equal_latency import Bound, Rate, common_latency, rate_at
from octavo.simulation.spaces import SpaceName


def test_the_latency_lies_in_the_middle_of_all_samples():
    assert common_latency([[(1.0, 0.1), (2.0, 0.4)], [(1.0, 0.2), (2.0, 0.2)]]) == pytest.approx(0.2)


def test_a_rate_lies_between_samples_on_logarithmic_axes():
    found = rate_at([(4.0, 1.0), (1.0, 0.1)], 0.1**0.5)
    assert found.per_s == pytest.approx(2.0)
    assert found.bound is Bound.EXACT


def test_of_several_crossings_the_highest_rate_counts():
    assert rate_at([(1.0, 0.1), (2.0, 0.4), (4.0, 0.1), (8.0, 0.4)], 0.2).per_s == pytest.approx(32**0.5)


def test_a_system_that_is_always_faster_takes_at_least_the_highest_rate_and_a_slower_one_at_most_the_lowest():
    points = [(1.0, 0.1), (2.0, 0.4)]
    assert rate_at(points, 5.0) == Rate(2.0, Bound.AT_LEAST)
    assert rate_at(points, 0.01) == Rate(1.0, Bound.AT_MOST)


@pytest.mark.parametrize(
    ("own", "other", "bound"),
    [
        (Bound.EXACT, Bound.EXACT, Bound.EXACT),
        (Bound.AT_LEAST, Bound.EXACT, Bound.AT_LEAST),
        (Bound.EXACT, Bound.AT_LEAST, Bound.AT_MOST),
        (Bound.AT_LEAST, Bound.AT_MOST, Bound.AT_LEAST),
    ],
)
def test_a_ratio_is_bounded_as_its_parts_are(own, other, bound):
    assert Rate(6.0, own).over(Rate(2.0, other)) == Rate(3.0, bound)


def test_two_rates_that_may_both_be_higher_have_no_ratio():
    assert Rate(6.0, Bound.AT_LEAST).over(Rate(2.0, Bound.AT_LEAST)) is None


MAX, PAGED = SpaceName.MAX, SpaceName.PAGED


def test_the_report_sets_the_ratio_of_rates_at_equal_latency_beside_the_papers():
    found = {MAX: [(1.0, 0.1), (2.0, 1.0)], PAGED: [(2.0, 0.1), (8.0, 1.0)]}
    rows = {row.name: row for row in rates({MAX: 1.5, PAGED: 6.0}, found, "a load").rows}
    equal = rows["paged / max, rate at 0.32 s/token"]
    assert equal.ours == pytest.approx(4.0 / 2**0.5)
    assert equal.paper == pytest.approx(3.5, rel=0.2)  # the knees of Fig. 12a
    assert rows["paged / max, requests/s all at once"].ours == 4.0


def test_a_system_that_is_faster_at_every_rate_takes_at_least_as_many_more():
    found = {MAX: [(1.0, 2.0), (2.0, 3.0)], PAGED: [(2.0, 0.1), (8.0, 0.2)]}
    rows = {row.name: row.ours for row in rates({MAX: 1.5, PAGED: 6.0}, found, "a load").rows}
    assert rows["paged / max, rate at 0.59 s/token, at least"] == 8.0
