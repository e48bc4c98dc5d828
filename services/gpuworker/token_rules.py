"""What forbids tokens or shifts their logits before a token is drawn.

In this order (docs/sampling.md): of the rows that have rules,

1. forbid tokens that are not allowed, that the mask excludes, that would complete a bad word, and, before
   ``min_tokens`` output tokens, the late ones; a forbidden token has logit -inf and keeps it;
2. add the biases;
3. penalize: divide positive logits of tokens in prompt or output by ``repetition_penalty`` and multiply negative
   ones; subtract ``frequency_penalty`` times the count in the output, and ``presence_penalty`` where that is not 0.

Rules become three lists of (row, token, value) entries, each applied to all rows at once. An entry touches its own
row only, so a row's logits do not depend on the other rows.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpuworker.core.steps import Sample, TokenRules

_LARGEST = torch.finfo(torch.float32).max

Row = tuple[int, Sample]


def apply_rules(logits: Tensor, samples: Sequence[Sample]) -> None:
    """Changes ``logits`` [num_samples, vocab] float32 in place, each row by the rules and the mask of its sample."""
    rows = list(enumerate(samples))
    ruled = [(row, sample, sample.params.rules) for row, sample in rows if sample.params.rules is not None]
    _exclude_all_but(logits, rows)
    _put(logits, [(row, sample.forbidden_token_ids()) for row, sample, _ in ruled], -torch.inf)
    _add_biases(logits, [(row, rules) for row, _, rules in ruled if rules.biases])
    _penalize(logits, [(row, sample) for row, sample, rules in ruled if rules.has_penalty])


def _exclude_all_but(logits: Tensor, rows: Iterable[Row]) -> None:
    """Masks and allowed tokens: a row of flags for each row that has either."""
    vocab_size = logits.shape[1]
    masked: list[int] = []
    flags: list[npt.NDArray[np.bool_]] = []
    for row, sample in rows:
        rules = sample.params.rules
        allowed = rules.allowed_token_ids if rules is not None else ()
        if not sample.mask and not allowed:
            continue
        masked.append(row)
        flags.append(_flags(sample.mask, allowed, vocab_size))
    if masked:
        excluded = ~torch.from_numpy(np.stack(flags)).to(logits.device)
        logits[masked] = logits[masked].masked_fill_(excluded, -torch.inf)


def _flags(mask: bytes, allowed: Sequence[int], vocab_size: int) -> npt.NDArray[np.bool_]:
    flags = np.ones(vocab_size, dtype=np.bool_)
    if mask:
        bits = np.frombuffer(mask, dtype=np.uint8)
        flags = np.unpackbits(bits, count=vocab_size, bitorder="little").astype(np.bool_)
    if allowed:
        only = np.zeros(vocab_size, dtype=np.bool_)
        only[np.fromiter(allowed, dtype=np.int64)] = True
        flags &= only
    return flags


def _put(logits: Tensor, entries: Iterable[tuple[int, Sequence[int]]], value: float) -> None:
    rows: list[int] = []
    token_ids: list[int] = []
    for row, ids in entries:
        rows += [row] * len(ids)
        token_ids += ids
    if rows:
        device = logits.device
        logits[torch.tensor(rows, device=device), torch.tensor(token_ids, device=device)] = value


def _add_biases(logits: Tensor, rows: Sequence[tuple[int, TokenRules]]) -> None:
    if not rows:
        return
    device = logits.device
    row_ids = torch.tensor([row for row, rules in rows for _ in rules.biases], device=device)
    token_ids = torch.tensor([token_id for _, rules in rows for token_id in rules.biased_token_ids], device=device)
    biases = torch.tensor([bias for _, rules in rows for bias in rules.biases], dtype=torch.float32, device=device)
    logits[row_ids, token_ids] += biases  # no entry stands twice


def _penalize(logits: Tensor, rows: Sequence[Row]) -> None:
    """Gathers the logits of every token that a penalized row has seen, shifts them and puts them back."""
    histories = [(row, sample.params.rules, sample.history) for row, sample in rows]
    columns = [(row, rules, history) for row, rules, history in histories if rules is not None and history is not None]
    if not columns:
        return
    device = logits.device
    seen = [len(history.distinct_token_ids) for _, _, history in columns]

    def spread(value_of: Callable[[TokenRules], float]) -> Tensor:
        values = np.array([value_of(rules) for _, rules, _ in columns], dtype=np.float32)
        return torch.from_numpy(np.repeat(values, seen)).to(device)

    row_ids = torch.from_numpy(np.repeat([row for row, _, _ in columns], seen)).to(device)
    token_ids = _joined(history.distinct_token_ids for _, _, history in columns).to(device)
    counts = _joined(history.output_counts for _, _, history in columns).float().to(device)
    values = logits[row_ids, token_ids]
    repetition = spread(lambda rules: rules.repetition_penalty)
    values = torch.where(values > 0, values / repetition, values * repetition)
    values -= spread(lambda rules: rules.frequency_penalty) * counts
    values -= spread(lambda rules: rules.presence_penalty) * (counts > 0)
    logits[row_ids, token_ids] = values.clamp_(max=_LARGEST)


def _joined(columns: Iterable["array[int]"]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.frombuffer(column, dtype=np.int64) for column in columns]))
