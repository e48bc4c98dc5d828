"""What a step must keep to whatever the worker holds: columns of one length, and values in their ranges."""

from collections.abc import Iterable, Sequence

from gpuworker.core.steps import NewSequence, SamplingParams, Step, TokenRules
from gpuworker.core.tables import check_columns
from gpuworker.errors import StepRefused


def check_shape(step: Step) -> None:
    """Raises ``StepRefused`` unless the columns fit each other."""
    check_columns(
        sequence_ids=len(step.sequence_ids),
        num_tokens=len(step.num_tokens),
        positions=len(step.positions),
        samples=len(step.samples),
        num_choices=len(step.num_choices or step.samples),
        token_masks=len(step.token_masks or step.samples),
    )
    if step.num_choices and min(step.num_choices) < 1:
        raise StepRefused(f"num_choices holds {min(step.num_choices)}, but must be at least 1")
    if len(set(step.sequence_ids)) != len(step.sequence_ids):
        raise StepRefused(f"sequence_ids names a sequence more than once: {sorted(step.sequence_ids)}")
    if step.num_tokens and min(step.num_tokens) < 1:
        raise StepRefused(f"num_tokens holds {min(step.num_tokens)}, but must be at least 1")
    if step.positions and min(step.positions) < 0:
        raise StepRefused(f"positions holds {min(step.positions)}, but must be at least 0")
    if sum(step.num_tokens) != len(step.token_ids):
        raise StepRefused(f"num_tokens sums to {sum(step.num_tokens)}, but token_ids has {len(step.token_ids)} entries")
    _check_scored(step)


def check_token_ids(step: Step, vocab_size: int) -> None:
    """Raises ``StepRefused`` for a token that is not in the vocabulary."""
    _check_vocabulary("token_ids", step.token_ids, vocab_size)
    _check_vocabulary("scored_token_ids", step.scored_token_ids, vocab_size)
    if step.scored_num_top and max(step.scored_num_top) > vocab_size:
        raise StepRefused(
            f"scored_num_top holds {max(step.scored_num_top)}, but the vocabulary has {vocab_size} tokens"
        )


def check_new_sequences(new_sequences: Iterable[NewSequence], vocab_size: int) -> None:
    """Raises ``StepRefused`` for parameters with which no token can be drawn."""
    for new in new_sequences:
        name = f"sampling of sequence {new.sequence_id}"
        _check_sampling(name, new.sampling, vocab_size)
        if new.sampling.rules is not None:
            _check_rules(name, new.sampling.rules, vocab_size)
        _check_vocabulary(f"{name}: token_ids", new.token_ids, vocab_size)


def _check_scored(step: Step) -> None:
    check_columns(
        scored_rows=len(step.scored_rows),
        scored_token_ids=len(step.scored_token_ids),
        scored_num_top=len(step.scored_num_top),
    )
    if step.scored_rows and not 0 <= min(step.scored_rows) <= max(step.scored_rows) < len(step.token_ids):
        raise StepRefused(
            f"scored_rows holds {min(step.scored_rows)} to {max(step.scored_rows)}, "
            f"but token_ids has {len(step.token_ids)} entries"
        )


def _check_sampling(name: str, params: SamplingParams, vocab_size: int) -> None:
    if not 0.0 <= params.temperature < float("inf"):
        raise StepRefused(f"{name}: temperature is {params.temperature}, but must be at least 0 and finite")
    if not 0.0 < params.top_p <= 1.0:
        raise StepRefused(f"{name}: top_p is {params.top_p}, but must be above 0 and at most 1")
    if params.top_k < 0:
        raise StepRefused(f"{name}: top_k is {params.top_k}, but must be at least 0")
    if not 0.0 <= params.min_p <= 1.0:
        raise StepRefused(f"{name}: min_p is {params.min_p}, but must be from 0 to 1")
    if params.num_top_logprobs > vocab_size:
        raise StepRefused(
            f"{name}: num_top_logprobs is {params.num_top_logprobs}, but the vocabulary has {vocab_size} tokens"
        )


def _check_rules(name: str, rules: TokenRules, vocab_size: int) -> None:
    check_columns(biased_token_ids=len(rules.biased_token_ids), biases=len(rules.biases))
    for column in ("biased_token_ids", "allowed_token_ids", "late_token_ids"):
        _check_vocabulary(f"{name}: {column}", getattr(rules, column), vocab_size)
    if len(set(rules.biased_token_ids)) != len(rules.biased_token_ids):
        raise StepRefused(f"{name}: biased_token_ids names a token more than once")
    for word in rules.bad_words:
        if not word:
            raise StepRefused(f"{name}: bad_words holds a word without tokens")
        _check_vocabulary(f"{name}: bad_words", word, vocab_size)
    if not 0.0 < rules.repetition_penalty < float("inf"):
        raise StepRefused(f"{name}: repetition_penalty is {rules.repetition_penalty}, but must be above 0 and finite")
    for field, values in (
        ("biases", rules.biases),
        ("presence_penalty", (rules.presence_penalty,)),
        ("frequency_penalty", (rules.frequency_penalty,)),
    ):
        for value in values:
            if not abs(value) < float("inf"):
                raise StepRefused(f"{name}: {field} has {value}, but must be finite")


def _check_vocabulary(name: str, token_ids: Sequence[int], vocab_size: int) -> None:
    if token_ids and max(token_ids) >= vocab_size:
        raise StepRefused(f"{name} holds {max(token_ids)}, but the vocabulary has {vocab_size} tokens")
    if token_ids and min(token_ids) < 0:
        raise StepRefused(f"{name} holds {min(token_ids)}, but must be at least 0")
