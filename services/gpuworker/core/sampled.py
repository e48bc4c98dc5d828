"""The tokens of the last step, for a step that was sent before anybody else knew them."""

from collections.abc import Iterable
from dataclasses import replace

from gpuworker.core.steps import NO_TOKEN, SAMPLED_TOKEN, Sample, SequenceId, Step
from gpuworker.errors import StepRefused


class SampledTokens:
    """What each sequence sampled in the last step that was carried out, and where that token stands."""

    def __init__(self) -> None:
        self._tokens: dict[SequenceId, tuple[int, int]] = {}  # position, token id

    def note(self, samples: Iterable[Sample], token_ids: Iterable[int]) -> None:
        """Keeps the tokens of a step, in place of those of the step before."""
        self._tokens = {
            sample.sequence_id: (sample.position, token_id) for sample, token_id in zip(samples, token_ids, strict=True)
        }

    def clear(self) -> None:
        """Forgets them: the last step brought none."""
        self._tokens = {}

    def fill_in(self, step: Step) -> Step:
        """The step with tokens in the place of every ``SAMPLED_TOKEN``. Its columns must fit each other.

        Raises:
            StepRefused: The sequence sampled no token for that place in the last step.

        """
        if SAMPLED_TOKEN not in step.token_ids:
            return step
        token_ids = list(step.token_ids)
        index = -1
        for sequence_id, num_tokens, position in zip(step.sequence_ids, step.num_tokens, step.positions, strict=True):
            index += num_tokens
            if token_ids[index] == SAMPLED_TOKEN:
                token_ids[index] = self._token(sequence_id, position + num_tokens - 1)
        return replace(step, token_ids=tuple(token_ids))

    def _token(self, sequence_id: SequenceId, position: int) -> int:
        sampled_at, token_id = self._tokens.get(sequence_id, (None, 0))
        if sampled_at != position:
            raise StepRefused(
                f"token_ids has the sampled token of sequence {sequence_id} at position {position}, "
                "but the last step sampled none for it there"
            )
        # A sequence without a token has ended. What is computed for it in the meantime is discarded.
        return 0 if token_id == NO_TOKEN else token_id
