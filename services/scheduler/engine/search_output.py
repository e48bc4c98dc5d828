"""What a beam search tells: nothing until it is over, and then its best outputs."""

from collections.abc import Callable

from scheduler.core.beams import Hypothesis
from scheduler.core.detokenizer import Detokenizer
from scheduler.core.request import FinishReason, OutputDelta
from scheduler.core.sequence import SequenceGroup
from scheduler.engine.streams import RequestStream


class SearchOutput:
    """The outputs of one search: choice ``i`` is the hypothesis with the ``i``-th best score."""

    def __init__(self, group: SequenceGroup, begin_text: Callable[[], Detokenizer], stream: RequestStream) -> None:
        self.group = group
        self.stream = stream
        self._begin_text = begin_text

    def finish(self, reason: FinishReason) -> None:
        """Emits each choice in one delta. A choice for which nothing was found is empty and ends for ``reason``."""
        search, request = self.group.search, self.group.request
        found = search.hypotheses[: request.num_choices] if search is not None else ()
        for choice_index, hypothesis in enumerate(found):
            self.stream.put(self._delta(choice_index, hypothesis))
        for choice_index in range(len(found), request.num_choices):
            self.stream.put(OutputDelta(choice_index, "", (), reason))

    def _delta(self, choice_index: int, hypothesis: Hypothesis) -> OutputDelta:
        request, beam = self.group.request, hypothesis.beam
        last_token_id = beam.token_ids[-1]
        scoring, num_top = self.group.sequences[0].scoring, request.sampling.num_top_logprobs
        return OutputDelta(
            choice_index=choice_index,
            text=self._text(hypothesis),
            token_ids=beam.token_ids,
            finish_reason=hypothesis.finish_reason,
            stop_reason=last_token_id if last_token_id in request.stop.stop_token_ids else None,
            num_cached_tokens=self.group.num_cached_tokens or 0,
            logprobs=beam.logprobs,
            tops=tuple(top[:num_top] for top in beam.tops) if num_top else (),
            prompt_logprobs=tuple(scoring.entries) if scoring is not None else (),
            beam_score=hypothesis.score,
        )

    def _text(self, hypothesis: Hypothesis) -> str:
        """A stop token counts as output, but has no text unless that is asked for."""
        request, token_ids = self.group.request, hypothesis.beam.token_ids
        if hypothesis.finish_reason is FinishReason.STOP and not request.stop.include_stop_str_in_output:
            token_ids = token_ids[:-1]
        detokenizer = self._begin_text()
        return "".join(map(detokenizer.push, token_ids)) + detokenizer.flush()
