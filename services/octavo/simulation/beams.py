"""A stand-in for the model in beam searches: what may follow each beam, and how probable it is.

Memory depends on one thing only: how often the next beams come from the same parent. The logits of the candidates fall
by gaps that are drawn from an exponential distribution, and a softmax makes probabilities of them: in most places one
token is the clear favourite and the beams go on side by side; in some several are close, and a beam branches.
"""

import math
import random

from scheduler.core.steps import Step, StepResult

_FIRST_CANDIDATE = 2
_MEAN_GAP = 3.0  # between logits; the one constant here, see docs/paper.md
_NUM_CANDIDATES = 8  # of which the softmax is taken


class BeamRows:
    """Draws the most probable next tokens of each beam; the same steps after the same seed give the same rows."""

    def __init__(self, width: int, seed: int = 0) -> None:
        self._width = width
        self._draw = random.Random(seed)  # noqa: S311 - reproducible, not secret

    def result(self, step: Step) -> StepResult:
        """The rows of all sequences that sample, best candidate first."""
        sampled = [i for i, samples in zip(step.sequence_ids, step.samples, strict=True) if samples]
        candidates = list(range(_FIRST_CANDIDATE, _FIRST_CANDIDATE + self._width))
        logprobs: list[float] = []
        for _ in sampled:
            logprobs += self._logprobs()
        return StepResult(
            step_id=step.step_id,
            sequence_ids=sampled,
            token_ids=[_FIRST_CANDIDATE] * len(sampled),
            logprobs=[0.0] * len(sampled),
            num_top=[self._width] * len(sampled),
            top_token_ids=candidates * len(sampled),
            top_logprobs=logprobs,
        )

    def _logprobs(self) -> list[float]:
        logits = [0.0]
        for _ in range(max(_NUM_CANDIDATES, self._width) - 1):
            logits.append(logits[-1] - self._draw.expovariate(1.0 / _MEAN_GAP))
        normalizer = math.log(sum(map(math.exp, logits)))
        return [logit - normalizer for logit in logits[: self._width]]
