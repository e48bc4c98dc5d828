"""How each token of a step is drawn, in the form that the sampling kernel reads."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpuworker.core.steps import Sample
from gpuworker.row_structs import ROW_BYTES, SamplingRow

_ROW = np.dtype(SamplingRow)


def pack(samples: Sequence[Sample]) -> npt.NDArray[np.uint8]:
    """An ``octavo_sampling_row`` for every sample: [num_samples, ROW_BYTES].

    Without penalties, which ``token_rules`` applies to the logits.
    """
    rows = np.zeros(len(samples), dtype=_ROW)
    params = [sample.params for sample in samples]
    rows["top_p"] = [entry.top_p for entry in params]
    rows["seed"] = [entry.seed for entry in params]
    rows["position"] = [sample.position for sample in samples]
    rows["choice_index"] = [entry.choice_index for entry in params]
    rows["top_k"] = [entry.top_k for entry in params]
    rows["temperature"] = [entry.temperature for entry in params]
    rows["log_min_p"] = [math.log(entry.min_p) if entry.min_p > 0 else -math.inf for entry in params]
    rows["repetition_penalty"] = 1.0
    return rows.view(np.uint8).reshape(len(samples), ROW_BYTES)
