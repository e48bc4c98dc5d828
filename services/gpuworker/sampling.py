"""How the next token is chosen from the logits (docs/sampling.md).

In this order: token rules and masks (``token_rules``); divide by the temperature; keep the tokens at least ``min_p``
times as probable as the most probable one; keep the ``top_k`` largest; turn into probabilities; keep the fewest of the
most probable whose sum reaches ``top_p``; draw. Tokens tied with the last one kept are kept too, so that the set
depends on the values alone and not on how a sort breaks ties. Temperature 0 takes the largest, the first of equals.

The draw inverts the cumulative distribution at one random number, a function of seed, choice index and position
(``philox``). All sums run in one fixed order over one row, so a row's token does not depend on the other rows.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gpuworker.core.steps import NO_TOKEN, Sample
from gpuworker.errors import LogitsNotFinite
from gpuworker.philox import uniform
from gpuworker.token_rules import apply_rules

_HEAD_TOKENS = 512  # top_p is first looked for among so many; the whole row is sorted only where they do not reach it
_MIN_TEMPERATURE = torch.finfo(torch.float32).tiny  # a smaller one would be 0 where denormals are flushed


@torch.inference_mode()
def sample(logits: Tensor, samples: Sequence[Sample]) -> list[int]:
    """One token id per row of ``logits`` [num_samples, vocab], which stay as they are, each by its own parameters.

    The logits may lie on any device; all of the work is done there.

    ``NO_TOKEN`` where the rules forbid every token. Raises ``LogitsNotFinite`` with the rows for which no token can
    be named.
    """
    if not samples:
        return []
    logits = logits.float()
    token_ids = logits.argmax(dim=-1)  # [num_samples]; NaN counts as the largest
    _require_finite(logits, token_ids)
    ruled = [row for row, entry in enumerate(samples) if entry.is_ruled]
    if ruled:
        logits = with_rules(logits, samples, ruled)
        token_ids[ruled] = _largest(logits[ruled])
    drawn = [row for row, entry in enumerate(samples) if entry.params.temperature > 0]
    if ruled:
        drawn = [row for row in drawn if token_ids[row] != NO_TOKEN]
    if drawn:
        token_ids[drawn] = _draw(logits[drawn], [samples[row] for row in drawn])
    result: list[int] = token_ids.tolist()
    return result


def _require_finite(logits: Tensor, largest: Tensor) -> None:
    """NaN and +inf are always the largest; a row whose largest is finite can be sampled, -inf being "never"."""
    finite = logits.gather(1, largest.unsqueeze(1)).squeeze(1).isfinite()
    if not finite.all():
        raise LogitsNotFinite((~finite).nonzero().flatten().tolist())


def with_rules(logits: Tensor, samples: Sequence[Sample], rows: Sequence[int]) -> Tensor:
    """A copy of ``logits`` [num_samples, vocab] float32 in which ``rows`` follow their rules."""
    changed = logits[rows]
    apply_rules(changed, [samples[row] for row in rows])
    if len(rows) == len(logits):
        return changed
    return logits.index_put((torch.tensor(rows, device=logits.device),), changed)


def _largest(logits: Tensor) -> Tensor:
    """The largest of each row, the first of equals; ``NO_TOKEN`` where all are -inf."""
    values, token_ids = logits.max(dim=-1)
    return token_ids.masked_fill(values == -torch.inf, NO_TOKEN)


def _draw(logits: Tensor, samples: Sequence[Sample]) -> Tensor:
    """Tokens [num_samples] by their probabilities. Every row has a finite logit."""
    params = [entry.params for entry in samples]
    device = logits.device
    temperature = torch.tensor([entry.temperature for entry in params], dtype=torch.float32, device=device)
    # The largest becomes 0, so that exp neither overflows nor is all 0, and no temperature makes a NaN.
    scaled = logits - logits.amax(dim=-1, keepdim=True)
    scaled /= temperature.clamp_(min=_MIN_TEMPERATURE).unsqueeze(1)
    _keep_min_p(scaled, [entry.min_p for entry in params])
    _keep_top_k(scaled, [entry.top_k for entry in params])
    weights = scaled.exp_()  # [num_samples, vocab], probabilities up to a factor
    _keep_top_p(weights, [entry.top_p for entry in params])
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    numbers = uniform(
        np.array([entry.seed for entry in params], dtype=np.uint64),
        np.array([entry.choice_index for entry in params], dtype=np.uint64),
        np.array([entry.position for entry in samples], dtype=np.uint64),
    )
    targets = cumulative[:, -1:] * torch.from_numpy(numbers).to(device).unsqueeze(1)
    return torch.searchsorted(cumulative, targets, right=True).squeeze(1)


def _keep_min_p(scaled: Tensor, min_ps: Sequence[float]) -> None:
    """Sets tokens less probable than ``min_p`` times the most probable one to -inf, in place; 0 keeps all.

    The largest of each row of ``scaled`` is 0.
    """
    rows = [row for row, min_p in enumerate(min_ps) if min_p > 0]
    if rows:
        shares = torch.tensor([min_ps[row] for row in rows], dtype=torch.float64, device=scaled.device)
        thresholds = shares.log().float()
        _fill_below(scaled, rows, thresholds, -torch.inf)


def _keep_top_k(scaled: Tensor, top_ks: Sequence[int]) -> None:
    """Sets all but the ``top_k`` largest of each row to -inf, in place; 0 keeps all."""
    rows = [row for row, top_k in enumerate(top_ks) if 0 < top_k < scaled.shape[1]]
    if rows:
        counts = torch.tensor([top_ks[row] for row in rows], device=scaled.device)
        largest = scaled[rows].topk(max(top_ks[row] for row in rows), dim=-1).values
        _fill_below(scaled, rows, largest.gather(1, (counts - 1).unsqueeze(1)).squeeze(1), -torch.inf)


def _keep_top_p(weights: Tensor, top_ps: Sequence[float]) -> None:
    """Sets the weights outside the nucleus of each row to 0, in place; 1 keeps all."""
    rows = [row for row, top_p in enumerate(top_ps) if top_p < 1.0]
    if rows:
        shares = torch.tensor([top_ps[row] for row in rows], dtype=torch.float64, device=weights.device)
        _fill_below(weights, rows, _last_of_nucleus(weights[rows], shares), 0.0)


def _fill_below(values: Tensor, rows: Sequence[int], thresholds: Tensor, filling: float) -> None:
    """Sets what is below a row's threshold to ``filling``, in place."""
    kept = values[rows]
    values[rows] = kept.masked_fill_(kept < thresholds.unsqueeze(1), filling)


def _last_of_nucleus(weights: Tensor, top_p: Tensor) -> Tensor:
    """Per row, the smallest weight among the fewest largest whose share of all reaches ``top_p``; one is always kept.

    ``weights`` [num_rows, vocab] float32, ``top_p`` [num_rows] float64; the result is [num_rows].
    """
    targets = weights.cumsum(dim=-1, dtype=torch.float64)[:, -1] * top_p
    largest = weights.topk(min(_HEAD_TOKENS, weights.shape[1]), dim=-1).values
    cumulative = largest.cumsum(dim=-1, dtype=torch.float64)
    last = _at(largest, cumulative, targets)
    wide = (cumulative[:, -1] < targets).nonzero().flatten()
    if wide.numel():
        largest = weights[wide].sort(dim=-1, descending=True).values
        last[wide] = _at(largest, largest.cumsum(dim=-1, dtype=torch.float64), targets[wide])
    return last


def _at(largest: Tensor, cumulative: Tensor, targets: Tensor) -> Tensor:
    """Per row, the entry of ``largest`` with which ``cumulative`` reaches the target, the last one if none does."""
    indexes = torch.searchsorted(cumulative, targets.unsqueeze(1)).clamp_(max=largest.shape[1] - 1)
    return largest.gather(1, indexes).squeeze(1)
