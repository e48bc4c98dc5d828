"""A stand-in for the model in beam searches: candidates whose log-probabilities fall off as language models' do.

Only one thing matters to memory: how often the next beams come from the same parent. That depends on the shape of the
candidates' log-probabilities, not on their scale. Here each gap between one candidate and the next is drawn from an
exponential distribution, so that most places have one clear favourite and some have several.
"""

import random

from scheduler.core.steps import Step, StepResult

_FIRST_CANDIDATE = 2


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
            logprob = 0.0
            for _ in candidates:
                logprob -= self._draw.expovariate(1.0)
                logprobs.append(logprob)
        return StepResult(
            step_id=step.step_id,
            sequence_ids=sampled,
            token_ids=[_FIRST_CANDIDATE] * len(sampled),
            logprobs=[0.0] * len(sampled),
            num_top=[self._width] * len(sampled),
            top_token_ids=candidates * len(sampled),
            top_logprobs=logprobs,
        )
