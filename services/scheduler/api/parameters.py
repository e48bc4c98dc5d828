"""From the fields that completions and chat share to what the engine is told."""

import secrets

from scheduler.api.fields import GenerationFields
from scheduler.core.request import SamplingParams, StopConditions, TokenRules
from scheduler.ports import Tokenizer


def sampling_params(fields: GenerationFields, tokenizer: Tokenizer, num_top_logprobs: int = 0) -> SamplingParams:
    """How tokens are drawn; a random seed where none is given."""
    return SamplingParams(
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=max(fields.top_k, 0),
        seed=seed_of(fields),
        min_p=fields.min_p,
        num_top_logprobs=num_top_logprobs,
        rules=TokenRules(
            logit_bias=fields.logit_bias,
            allowed_token_ids=tuple(dict.fromkeys(fields.allowed_token_ids or ())),
            bad_words=bad_words(fields.bad_words, tokenizer),
            repetition_penalty=fields.repetition_penalty,
            presence_penalty=fields.presence_penalty,
            frequency_penalty=fields.frequency_penalty,
        ),
    )


def seed_of(fields: GenerationFields) -> int:
    """The seed that was asked for, or another one at each call."""
    return secrets.randbits(64) if fields.seed is None else fields.seed % 2**64


def stop_conditions(fields: GenerationFields, max_tokens: int, tokenizer: Tokenizer) -> StopConditions:
    """When outputs end."""
    return StopConditions(
        max_tokens=max_tokens,
        stop=fields.stop,
        stop_token_ids=frozenset(fields.stop_token_ids),
        eos_token_ids=tokenizer.eos_token_ids,
        ignore_eos=fields.ignore_eos,
        min_tokens=fields.min_tokens,
        include_stop_str_in_output=fields.include_stop_str_in_output,
    )


def bad_words(words: tuple[str, ...], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Tokens of each word, as it stands at the beginning of a text and after a space."""
    spellings = (spelling for word in words for spelling in (word, " " + word.lstrip()))
    tokens = (tuple(tokenizer.encode(spelling, add_special_tokens=False)) for spelling in spellings)
    return tuple(dict.fromkeys(filter(None, tokens)))
