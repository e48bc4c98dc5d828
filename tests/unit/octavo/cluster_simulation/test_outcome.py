"""Percentiles and how evenly something is shared."""

from math import isclose, sqrt

from octavo.cluster_simulation.outcome import Balance, Percentiles


def test_percentiles_interpolate_linearly():
    assert Percentiles.of([3.0, 1.0, 2.0]) == Percentiles(2.0, 2.8, 2.98)
    assert Percentiles.of([5.0]) == Percentiles(5.0, 5.0, 5.0)


def test_balance_compares_the_most_with_the_mean():
    uneven = Balance.of([1.0, 1.0, 4.0])
    assert uneven.max_over_mean == 2.0
    assert isclose(uneven.variation, sqrt(2) / 2)
    assert Balance.of([2.0, 2.0]) == Balance(1.0, 0.0)
    assert Balance.of([0.0, 0.0]) == Balance(1.0, 0.0)
