"""The search alone, against a naive one over a random table of probabilities, and by hand."""

from functools import cache
from itertools import product
from math import exp, log
from random import Random

import pytest

from doubles.naive_beams import naive_beam_search
from scheduler.core.beams import Beam, BeamSearch, num_top_of
from scheduler.core.request import BeamParams, EarlyStopping, FinishReason, StopConditions

VOCAB_SIZE = 12
ENDINGS = [frozenset(), frozenset({3}), frozenset({3, 5, 8})]


class Table:
    """Random log-probabilities after every context; ending tokens are made likely, so that searches end early."""

    def __init__(self, seed: int, ending: frozenset[int]) -> None:
        self.seed, self.ending = seed, ending
        self.after = cache(self._after)

    def _after(self, token_ids: tuple[int, ...]) -> tuple[tuple[int, float], ...]:
        random = Random(repr((self.seed, token_ids)))
        logits = [random.gauss(0, 1.5) + (token in self.ending) for token in range(VOCAB_SIZE)]
        total = log(sum(map(exp, logits)))
        return tuple(sorted(((t, logit - total) for t, logit in enumerate(logits)), key=lambda entry: -entry[1]))


def run(table: Table, params: BeamParams, stop: StopConditions) -> BeamSearch:
    search, beams = BeamSearch(params, stop), [Beam()]
    while beams:
        rows = [table.after((1, 2, *beam.token_ids))[: num_top_of(params, stop)] for beam in beams]
        extensions = search.extend(beams, rows)
        for extension in extensions:
            parent = beams[extension.parent_index]
            assert extension.beam.token_ids[:-1] == parent.token_ids
            assert extension.beam.sum_logprobs == pytest.approx(sum(extension.beam.logprobs))
        beams = [extension.beam for extension in extensions]
    return search


@pytest.mark.parametrize("ending", ENDINGS, ids=len)
@pytest.mark.parametrize("early_stopping", EarlyStopping)
@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 0.5, 1.0, 2.0])
def test_it_finds_what_a_search_over_every_token_finds(ending, early_stopping, length_penalty):
    for seed, width, min_tokens in product(range(6), (1, 2, 4), (0, 3)):
        table = Table(seed, ending)
        params = BeamParams(width, length_penalty, early_stopping)
        stop = StopConditions(max_tokens=7, eos_token_ids=ending, min_tokens=min_tokens)
        found = run(table, params, stop).hypotheses
        expected = naive_beam_search(table.after, (1, 2), 7, params, ending, min_tokens)
        assert [hypothesis.beam.token_ids for hypothesis in found] == [output for output, _ in expected]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for _, score in expected])


def step(search: BeamSearch, beams: list[Beam], rows: list[dict[int, float]]) -> list[tuple[int, tuple[int, ...]]]:
    extensions = search.extend(beams, [tuple(row.items()) for row in rows])
    return [(extension.parent_index, extension.beam.token_ids) for extension in extensions]


def beam(total: float, *token_ids: int) -> Beam:
    return Beam(token_ids, (total / len(token_ids),) * len(token_ids), ((),) * len(token_ids), total)


class TestOneStep:
    """Two beams; token 9 ends."""

    stop = StopConditions(max_tokens=5, eos_token_ids=frozenset({9}))

    def search(self, early_stopping: EarlyStopping = EarlyStopping.HEURISTIC, penalty: float = 1.0) -> BeamSearch:
        return BeamSearch(BeamParams(2, penalty, early_stopping), self.stop)

    def test_the_best_extensions_may_all_come_from_one_beam(self):
        rows = [{1: -0.1, 2: -0.2, 3: -0.3}, {4: -0.1, 5: -0.2, 6: -0.3}]
        assert step(self.search(), [beam(-1, 7), beam(-5, 8)], rows) == [(0, (7, 1)), (0, (7, 2))]

    def test_an_ending_token_among_the_best_makes_a_hypothesis_scored_by_its_generated_length(self):
        search = self.search()
        rows = [{9: -0.1, 1: -0.2, 2: -0.3}, {4: -9.0, 5: -9.0, 6: -9.0}]
        assert step(search, [beam(-1, 7), beam(-5, 8)], rows) == [(0, (7, 1)), (0, (7, 2))]
        [hypothesis] = search.hypotheses
        assert hypothesis.beam.token_ids == (7, 9)
        assert hypothesis.score == pytest.approx(-1.1 / 2)
        assert hypothesis.finish_reason is FinishReason.STOP

    def test_an_ending_token_beyond_the_best_is_dropped(self):
        search = self.search()
        step(search, [beam(-1, 7), beam(-5, 8)], [{1: -0.1, 2: -0.2, 9: -0.3}, {4: -1.0, 5: -2.0, 6: -3.0}])
        assert search.hypotheses == ()

    def test_early_stopping_ends_at_the_width_even_where_a_beam_is_better(self):
        rows = [{9: -1.0, 1: -0.1, 2: -3.0}, {9: -1.1, 4: -4.0, 5: -5.0}]
        for early_stopping, num_going_on in ((EarlyStopping.ALWAYS, 0), (EarlyStopping.HEURISTIC, 2)):
            search = self.search(early_stopping)
            found = step(search, [beam(-1, 7), beam(-1, 8)], rows)
            found = step(search, [beam(-1, 7, 1), beam(-1.1, 8, 1)], rows) if found else found
            assert len(found) == num_going_on

    def test_without_early_stopping_it_hopes_for_the_longest_output(self):
        rows = [{9: -0.1, 1: -0.5, 2: -0.6}, {9: -0.2, 4: -0.7, 5: -0.8}]
        beams = [beam(-1.0, 7), beam(-1.0, 8)]
        assert step(self.search(EarlyStopping.HEURISTIC), beams, rows) == []
        assert len(step(self.search(EarlyStopping.NEVER), beams, rows)) == 2

    def test_at_the_last_token_every_extension_among_the_best_is_a_hypothesis(self):
        search = self.search()
        beams = [beam(-1, 7, 7, 7, 7), beam(-2, 8, 8, 8, 8)]
        assert step(search, beams, [{9: -0.1, 1: -0.2, 2: -9.0}, {1: -0.1, 4: -1.0, 5: -2.0}]) == []
        assert [(h.beam.token_ids[-1], h.finish_reason) for h in search.hypotheses] == [
            (9, FinishReason.STOP),
            (1, FinishReason.LENGTH),
        ]
