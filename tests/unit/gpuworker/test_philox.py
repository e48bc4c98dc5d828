"""The generator is the published one, and a number depends on seed, choice and position only."""

import numpy as np
import pytest

from gpuworker.philox import philox4x32, uniform

PI_COUNTER, PI_KEY = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)


def column(*words: int) -> np.ndarray:
    return np.array(words, dtype=np.uint64)[:, None]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (PI_COUNTER, PI_KEY, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_it_gives_the_known_answers_of_the_authors(counter, key, expected):
    assert philox4x32(column(*counter), column(*key)).ravel().tolist() == list(expected)


def numbers(seeds, choices, positions):
    arrays = np.broadcast_arrays(*(np.asarray(values, dtype=np.uint64) for values in (seeds, choices, positions)))
    return uniform(*(np.ascontiguousarray(np.atleast_1d(values)) for values in arrays))


def test_a_number_does_not_depend_on_its_neighbours():
    positions = np.arange(1000, dtype=np.uint64)
    together = numbers(2**63 + 5, 1, positions)
    alone = [numbers(2**63 + 5, 1, position)[0] for position in (0, 17, 999)]
    assert alone == together[[0, 17, 999]].tolist()


def test_seed_choice_and_position_each_change_the_number():
    base = numbers(7, 0, 0)[0]
    others = {numbers(8, 0, 0)[0], numbers(7 + 2**32, 0, 0)[0], numbers(7, 1, 0)[0], numbers(7, 0, 1)[0]}
    assert base not in others
    assert len(others) == 4


def test_numbers_are_spread_evenly_over_zero_to_one():
    drawn = numbers(3, 2, np.arange(100_000))
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    counts = np.histogram(drawn, bins=100, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 149  # chi-squared, 99 degrees of freedom, p = 0.001
