"""Beam search as transformers writes it down, over every pair of beam and token, with lists and no shortcut."""

from collections.abc import Callable, Sequence

from scheduler.core.request import BeamParams, EarlyStopping

VERY_LOW = -1.0e9
Distribution = Callable[[tuple[int, ...]], Sequence[tuple[int, float]]]
Found = list[tuple[tuple[int, ...], float]]


def naive_beam_search(
    distribution: Distribution,
    prompt: Sequence[int],
    max_tokens: int,
    params: BeamParams,
    ending: frozenset[int] = frozenset(),
    min_tokens: int = 0,
) -> Found:
    """Outputs with their scores, best first. ``distribution`` gives every token of the vocabulary."""
    width, penalty = params.width, params.length_penalty
    running: Found = [((), 0.0)]
    finished: Found = []
    for length in range(1, max_tokens + 1):
        candidates: Found = []
        for output, total in running:
            for token, logprob in distribution((*prompt, *output)):
                forbidden = token in ending and length <= min_tokens
                candidates.append(((*output, token), total + (VERY_LOW if forbidden else logprob)))
        candidates.sort(key=lambda entry: -entry[1])

        def hits(output: tuple[int, ...], length: int = length) -> bool:
            return output[-1] in ending or length == max_tokens

        new = [(output, total / length**penalty) for output, total in candidates[:width] if hits(output)]
        finished = sorted([*finished, *new], key=lambda entry: -entry[1])[:width]
        running = [entry for entry in candidates if not hits(entry[0])][:width]
        if not running or _is_over(running[0][1], finished, length, max_tokens, params):
            break
    return finished


def _is_over(best: float, finished: Found, length: int, max_tokens: int, params: BeamParams) -> bool:
    if len(finished) < params.width:
        return False
    if params.early_stopping is EarlyStopping.ALWAYS:
        return True
    never = params.early_stopping is EarlyStopping.NEVER and params.length_penalty > 0
    hypothetical_length = max_tokens if never else length
    return best / hypothetical_length**params.length_penalty <= finished[-1][1]
