"""Log-probabilities by the model's own distribution: of logits before any rule, temperature, top_k or top_p."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpuworker.core.steps import NO_TOKEN, Scores

_PIECE_TOKENS = 128
_MAX_ROWS = 64  # taken at a time, so that the prompt of a long chunk needs no second copy of all its logits


@torch.inference_mode()
def scores(logits: Tensor, token_ids: Sequence[int], num_top: Sequence[int]) -> Scores:
    """The scores of one token per row of ``logits`` [num_rows, vocab], with the ``num_top`` most probable ones.

    ``NO_TOKEN`` has log-probability 0. A row of logits that are not finite has a NaN.
    """
    logprobs: list[float] = []
    top_token_ids: list[int] = []
    top_logprobs: list[float] = []
    for start in range(0, len(token_ids), _MAX_ROWS):
        part = slice(start, start + _MAX_ROWS)
        rows = logits[part].float()
        normalizers = _normalizers(rows)
        logprobs += _chosen(rows, normalizers, token_ids[part])
        if any(num_top[part]):
            ids, values = _top(rows, normalizers, num_top[part])
            top_token_ids += ids
            top_logprobs += values
    return Scores(logprobs, num_top if top_token_ids else (), top_token_ids, top_logprobs)


def score_table(logits: Tensor, token_ids: Tensor, num_top: int) -> Tensor:
    """What ``scores`` tells, as one table, without waiting for the device: [num_rows, 1 + 2 * num_top] float64.

    ``token_ids``: [num_rows] int64, where the logits lie. Columns: the log-probability of the token, the ids of the
    ``num_top`` most probable ones, their log-probabilities.
    """
    parts = [torch.empty(0, 1 + 2 * num_top, dtype=torch.float64, device=logits.device)]
    for start in range(0, len(token_ids), _MAX_ROWS):
        rows = logits[start : start + _MAX_ROWS].float()
        normalizers = _normalizers(rows).unsqueeze(1)
        known = token_ids[start : start + _MAX_ROWS].clamp(0, logits.shape[1] - 1)  # NO_TOKEN has no logit
        top = rows.topk(num_top, dim=-1)
        chosen = rows.gather(1, known.unsqueeze(1)) - normalizers
        parts.append(torch.cat([chosen, top.indices.double(), top.values - normalizers], dim=1))
    return torch.cat(parts)


def read_scores(table: npt.NDArray[np.float64], token_ids: Sequence[int], num_top: Sequence[int]) -> Scores:
    """The scores in a table of ``score_table``: as ``scores`` tells them."""
    logprobs = [0.0 if i == NO_TOKEN else value for i, value in zip(token_ids, table[:, 0].tolist(), strict=True)]
    if not any(num_top):
        return Scores(logprobs)
    ids, values = np.split(table[:, 1:], 2, axis=1)
    kept = np.arange(ids.shape[1]) < np.array(num_top)[:, None]
    return Scores(logprobs, num_top, ids[kept].astype(np.int64).tolist(), values[kept].tolist())


def _normalizers(logits: Tensor) -> Tensor:
    """Log of the sum of exponentials per row, [num_rows] float64.

    Sums of short pieces, then of these: torch splits one long sum among threads in ways that depend on the batch.
    """
    largest = logits.amax(dim=-1, keepdim=True)
    weights = torch.nn.functional.pad((logits - largest).exp(), (0, -logits.shape[1] % _PIECE_TOKENS))
    totals = weights.view(len(weights), -1, _PIECE_TOKENS).sum(dim=-1, dtype=torch.float64).sum(dim=-1)
    return totals.log() + largest.squeeze(1)


def _chosen(logits: Tensor, normalizers: Tensor, token_ids: Sequence[int]) -> list[float]:
    known = [0 if token_id == NO_TOKEN else token_id for token_id in token_ids]
    chosen = torch.tensor(known, device=logits.device).unsqueeze(1)
    logprobs: list[float] = (logits.gather(1, chosen).squeeze(1) - normalizers).tolist()
    return [0.0 if i == NO_TOKEN else logprob for i, logprob in zip(token_ids, logprobs, strict=True)]


def _top(logits: Tensor, normalizers: Tensor, num_top: Sequence[int]) -> tuple[list[int], list[float]]:
    """Ids and log-probabilities of each row's most probable tokens, row after row."""
    counts = torch.tensor(num_top, device=logits.device)
    asking = counts.nonzero().flatten()
    values, ids = logits[asking].topk(max(num_top), dim=-1)
    kept = torch.arange(values.shape[1], device=logits.device) < counts[asking].unsqueeze(1)
    logprobs = values - normalizers[asking].unsqueeze(1)
    return ids[kept].tolist(), logprobs[kept].tolist()
