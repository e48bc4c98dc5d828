"""Rates at which several systems have the same latency."""

import pytest

from octavo.live.baselines import rates
from octavo.live.equal_latency import common_latency, rate_at
from octavo.simulation.spaces import SpaceName


def test_the_latency_is_one_that_every_curve_comes_to():
    curves = {"slow": [(1.0, 0.2), (2.0, 0.8)], "fast": [(2.0, 0.05), (8.0, 0.5)]}
    latency = common_latency(curves)
    assert latency == pytest.approx((0.2 * 0.5) ** 0.5)
    for points in curves.values():
        assert points[0][0] <= rate_at(points, latency) <= points[1][0]


def test_there_is_none_where_one_system_is_always_slower_than_another():
    assert common_latency({"slow": [(1.0, 2.0), (2.0, 3.0)], "fast": [(1.0, 0.1), (2.0, 0.2)]}) is None


def test_a_rate_lies_between_samples_on_logarithmic_axes():
    assert rate_at([(1.0, 0.1), (4.0, 1.0)], 0.1**0.5) == pytest.approx(2.0)


def test_of_several_crossings_the_highest_rate_counts():
    assert rate_at([(1.0, 0.1), (2.0, 0.4), (4.0, 0.1), (8.0, 0.4)], 0.2) == pytest.approx(32**0.5)


def test_a_latency_that_the_curve_never_has_is_an_error():
    with pytest.raises(ValueError, match="does not come to a latency of 5"):
        rate_at([(1.0, 0.1), (2.0, 0.4)], 5.0)


MAX, PAGED = SpaceName.MAX, SpaceName.PAGED


def test_the_report_sets_the_ratio_of_rates_at_equal_latency_beside_the_papers():
    found = {MAX: [(1.0, 0.1), (2.0, 1.0)], PAGED: [(2.0, 0.1), (8.0, 1.0)]}
    rows = {row.name: row for row in rates({MAX: 1.5, PAGED: 6.0}, found, "a load").rows}
    equal = rows["paged / max, rate at 0.32 s/token"]
    assert equal.ours == pytest.approx(4.0 / 2**0.5)
    assert equal.paper == pytest.approx(3.5, rel=0.2)  # the knees of Fig. 12a
    assert rows["paged / max, requests/s all at once"].ours == 4.0


def test_without_an_equal_latency_there_is_no_such_ratio():
    found = {MAX: [(1.0, 2.0), (2.0, 3.0)], PAGED: [(2.0, 0.1), (8.0, 0.2)]}
    names = [row.name for row in rates({MAX: 1.5, PAGED: 6.0}, found, "a load").rows]
    assert not [name for name in names if "rate at" in name]
    assert "max at 1.00 req/s" in names
