"""How the next token is chosen from the logits.

In this order: divide by the temperature; keep the ``top_k`` largest; turn into probabilities; keep the fewest of the
most probable whose sum reaches ``top_p``; draw. Tokens tied with the last one kept are kept too, so that the set
depends on the values alone and not on how a sort breaks ties. Temperature 0 takes the largest, the first of equals.

The draw inverts the cumulative distribution at one random number, a function of seed, choice index and position
(``philox``). All sums run in one fixed order over one row, so a row's token does not depend on the other rows.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gpuworker.core.steps import Sample
from gpuworker.errors import LogitsNotFinite
from gpuworker.philox import uniform

_PIECE_TOKENS = 128
_HEAD_TOKENS = 512  # top_p is first looked for among so many; the whole row is sorted only where they do not reach it


@torch.inference_mode()
def sample(logits: Tensor, samples: Sequence[Sample]) -> list[int]:
    """One token id per row of ``logits`` [num_samples, vocab], each by its own parameters.

    Raises ``LogitsNotFinite`` with the rows for which no token can be named.
    """
    if not samples:
        return []
    logits = logits.float()
    token_ids = logits.argmax(dim=-1)  # [num_samples]; NaN counts as the largest
    _require_finite(logits, token_ids)
    drawn = [row for row, entry in enumerate(samples) if entry.params.temperature > 0]
    if drawn:
        token_ids[drawn] = _draw(logits[drawn], [samples[row] for row in drawn])
    result: list[int] = token_ids.tolist()
    return result


@torch.inference_mode()
def log_probabilities(logits: Tensor, token_ids: Sequence[int]) -> list[float]:
    """Log-probability of one token per row of finite ``logits`` [num_samples, vocab], which nothing has modified."""
    if not token_ids:
        return []
    logits = logits.float()
    logits = logits - logits.amax(dim=-1, keepdim=True)
    chosen = logits.gather(1, torch.tensor(token_ids).unsqueeze(1)).squeeze(1).double()
    # Sums of short pieces, then of these: torch splits one long sum among threads in ways that depend on the batch.
    weights = torch.nn.functional.pad(logits.exp(), (0, -logits.shape[1] % _PIECE_TOKENS))
    totals = weights.view(len(weights), -1, _PIECE_TOKENS).sum(dim=-1, dtype=torch.float64).sum(dim=-1)
    result: list[float] = (chosen - totals.log()).tolist()
    return result


def _require_finite(logits: Tensor, largest: Tensor) -> None:
    """NaN and +inf are always the largest; a row whose largest is finite can be sampled, -inf being "never"."""
    finite = logits.gather(1, largest.unsqueeze(1)).squeeze(1).isfinite()
    if not finite.all():
        raise LogitsNotFinite((~finite).nonzero().flatten().tolist())


def _draw(logits: Tensor, samples: Sequence[Sample]) -> Tensor:
    """Tokens [num_samples] by their probabilities."""
    params = [entry.params for entry in samples]
    temperature = torch.tensor([entry.temperature for entry in params], dtype=torch.float32)
    scaled = logits / temperature.unsqueeze(1)
    scaled = scaled - scaled.amax(dim=-1, keepdim=True)  # the largest is 0, so that exp neither overflows nor is all 0
    _keep_top_k(scaled, [entry.top_k for entry in params])
    weights = scaled.exp()  # [num_samples, vocab], probabilities up to a factor
    _keep_top_p(weights, [entry.top_p for entry in params])
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    numbers = uniform(
        np.array([entry.seed for entry in params], dtype=np.uint64),
        np.array([entry.choice_index for entry in params], dtype=np.uint64),
        np.array([entry.position for entry in samples], dtype=np.uint64),
    )
    targets = cumulative[:, -1:] * torch.from_numpy(numbers).unsqueeze(1)
    return torch.searchsorted(cumulative, targets, right=True).squeeze(1)


def _keep_top_k(scaled: Tensor, top_ks: Sequence[int]) -> None:
    """Sets all but the ``top_k`` largest of each row to -inf, in place; 0 keeps all."""
    vocab_size = scaled.shape[1]
    for row, top_k in enumerate(top_ks):
        if 0 < top_k < vocab_size:
            last_kept = scaled[row].topk(top_k).values[-1]
            scaled[row].masked_fill_(scaled[row] < last_kept, -torch.inf)


def _keep_top_p(weights: Tensor, top_ps: Sequence[float]) -> None:
    """Sets the weights outside the nucleus of each row to 0, in place; 1 keeps all."""
    for row, top_p in enumerate(top_ps):
        if top_p < 1.0:
            last_kept = _last_of_nucleus(weights[row], top_p)
            weights[row].masked_fill_(weights[row] < last_kept, 0.0)


def _last_of_nucleus(weights: Tensor, top_p: float) -> Tensor:
    """The smallest weight among the fewest largest whose share of all reaches ``top_p``; at least one is kept."""
    total = weights.cumsum(dim=-1, dtype=torch.float64)[-1]
    largest = weights.topk(min(_HEAD_TOKENS, weights.numel())).values
    cumulative = largest.cumsum(dim=-1, dtype=torch.float64)
    if cumulative[-1] < top_p * total:
        largest = weights.sort(descending=True).values
        cumulative = largest.cumsum(dim=-1, dtype=torch.float64)
    index = int(torch.searchsorted(cumulative, top_p * total))
    return largest[min(index, largest.numel() - 1)]
