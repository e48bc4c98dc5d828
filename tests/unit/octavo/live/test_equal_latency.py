"""Rates at which several systems have the same latency."""

import pytest

from octavo.live.equal_latency import common_latency, rate_at


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
