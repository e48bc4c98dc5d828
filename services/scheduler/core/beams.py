"""Beam search: the most probable outputs, found by growing the best few prefixes side by side (paper §4.4).

In each step every beam is extended by its most probable tokens. Of all extensions the best ``width`` that do not end
are the next beams. Those among the best ``width`` that do end are hypotheses, with

    score = sum of log-probabilities / generated length ** length_penalty

The prompt does not count, the ending token does. Selection, scores and the end of the search are those of
`generate(num_beams=…)` in transformers 5; where that searches ``width * vocabulary``, the best ``width`` extensions of
one beam that do not end are enough here: no others could be among the best of all.
"""

import math
from collections.abc import Sequence as Column
from dataclasses import dataclass

from scheduler.core.request import BeamParams, EarlyStopping, FinishReason, StopConditions
from scheduler.core.steps import Top


@dataclass(frozen=True, slots=True)
class Beam:
    """An output that can still grow. ``tops`` are the rows that its tokens were taken from."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    tops: tuple[Top, ...] = ()
    sum_logprobs: float = 0.0


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A whole output."""

    beam: Beam
    score: float
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Extension:
    """A beam with one more token; ``parent_index`` says which."""

    parent_index: int
    beam: Beam


@dataclass(frozen=True, slots=True)
class _Candidate:
    parent_index: int
    token_id: int
    logprob: float
    sum_logprobs: float


class BeamSearch:
    """One search: what it has found, and which beams go on."""

    def __init__(self, params: BeamParams, stop: StopConditions) -> None:
        self._params = params
        self._stop = stop
        self._hypotheses: list[Hypothesis] = []

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """What was found so far, at most ``width``, best first."""
        return tuple(self._hypotheses)

    def extend(self, beams: Column[Beam], rows: Column[Top]) -> list[Extension]:
        """The next beams, best first; none when the search is over.

        ``rows`` has for each beam its most probable next tokens, at least ``num_top_of(params, stop)`` of them, or
        the whole vocabulary.
        """
        width, ending = self._params.width, self._stop.ending_token_ids
        length = len(beams[0].token_ids) + 1
        is_last = length >= self._stop.max_tokens
        candidates = self._candidates(beams, rows, may_end=length > self._stop.min_tokens)
        for candidate in candidates[:width]:
            if candidate.token_id in ending:
                self._keep(candidate, beams, rows, FinishReason.STOP)
            elif is_last:
                self._keep(candidate, beams, rows, FinishReason.LENGTH)
        going_on = [candidate for candidate in candidates if candidate.token_id not in ending][:width]
        if is_last or not going_on or self._is_over(going_on[0].sum_logprobs, length):
            return []
        return [Extension(candidate.parent_index, _grown(candidate, beams, rows)) for candidate in going_on]

    def _candidates(self, beams: Column[Beam], rows: Column[Top], *, may_end: bool) -> list[_Candidate]:
        """Extensions of all beams, best first; of equals, those of the better beam."""
        ending = self._stop.ending_token_ids
        candidates = [
            _Candidate(index, token_id, logprob, beam.sum_logprobs + logprob)
            for index, (beam, row) in enumerate(zip(beams, rows, strict=True))
            for token_id, logprob in row
            if may_end or token_id not in ending
        ]
        candidates.sort(key=lambda candidate: -candidate.sum_logprobs)
        return candidates

    def _keep(self, candidate: _Candidate, beams: Column[Beam], rows: Column[Top], reason: FinishReason) -> None:
        beam = _grown(candidate, beams, rows)
        score = self._score(beam.sum_logprobs, len(beam.token_ids))
        self._hypotheses.append(Hypothesis(beam, score, reason))
        self._hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del self._hypotheses[self._params.width :]

    def _is_over(self, best_sum_logprobs: float, length: int) -> bool:
        """Whether there are enough hypotheses, and none of them is expected to be replaced by a better one."""
        params = self._params
        if len(self._hypotheses) < params.width:
            return False
        if params.early_stopping is EarlyStopping.ALWAYS:
            return True
        if params.early_stopping is EarlyStopping.NEVER and params.length_penalty > 0.0:
            length = self._stop.max_tokens  # where the same sum would give the highest score
        return self._score(best_sum_logprobs, length) <= self._hypotheses[-1].score

    def _score(self, sum_logprobs: float, length: int) -> float:
        return sum_logprobs / math.pow(length, self._params.length_penalty)


def num_top_of(params: BeamParams, stop: StopConditions) -> int:
    """How many of each beam's most probable tokens a search needs: ``width`` of them may go on whichever end it."""
    return params.width + len(stop.ending_token_ids)


def _grown(candidate: _Candidate, beams: Column[Beam], rows: Column[Top]) -> Beam:
    parent = beams[candidate.parent_index]
    return Beam(
        (*parent.token_ids, candidate.token_id),
        (*parent.logprobs, candidate.logprob),
        (*parent.tops, rows[candidate.parent_index]),
        candidate.sum_logprobs,
    )
