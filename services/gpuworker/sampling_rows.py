"""How each token of a step is drawn, in the form that the kernels for sampling read it."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpuworker.core.steps import Sample
from gpuworker.row_structs import ROW_BYTES, SamplingRow

ROW = np.dtype(SamplingRow)

_MOST_TOP_K = 2**31 - 1  # of the struct; as good as all tokens


def fill(rows: npt.NDArray[np.void], samples: Sequence[Sample]) -> None:
    """Writes how each sample is drawn into ``rows``, an ``octavo_sampling_row`` of zeros for each: [num_samples].

    Without rules, which ``token_rules`` or the CPU's kernel applies, and without what is told of the most probable
    tokens.
    """
    params = [sample.params for sample in samples]
    rows["top_p"] = [entry.top_p for entry in params]
    rows["seed"] = [entry.seed for entry in params]
    rows["position"] = [sample.position for sample in samples]
    rows["choice_index"] = [entry.choice_index for entry in params]
    rows["top_k"] = [min(entry.top_k, _MOST_TOP_K) for entry in params]
    rows["temperature"] = [entry.temperature for entry in params]
    rows["log_min_p"] = [math.log(entry.min_p) if entry.min_p > 0 else -math.inf for entry in params]
    rows["repetition_penalty"] = 1.0


def pack(samples: Sequence[Sample]) -> npt.NDArray[np.uint8]:
    """The rows of all samples as bytes, for a device: [num_samples, ROW_BYTES]."""
    rows = np.zeros(len(samples), dtype=ROW)
    fill(rows, samples)
    return rows.view(np.uint8).reshape(len(samples), ROW_BYTES)
