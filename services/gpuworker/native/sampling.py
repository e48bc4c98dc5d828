"""Draws the tokens of a step from its logits."""

import numpy as np
import numpy.typing as npt

from gpuworker.core.batch import Batch
from gpuworker.core.steps import Drawn


def draw(batch: Batch, logits: npt.NDArray[np.float32]) -> Drawn:
    """The tokens of ``batch.samples``. Raises ``LogitsNotFinite``."""
    import torch  # noqa: PLC0415 (importing torch takes seconds)

    from gpuworker.logprobs import scores  # noqa: PLC0415
    from gpuworker.sampling import sample  # noqa: PLC0415

    rows = torch.from_numpy(logits)
    num_drawn = len(rows) - len(batch.scored_token_ids)
    drawn, scored = rows[:num_drawn], rows[num_drawn:]
    if len(batch.samples) > num_drawn:
        drawn = drawn[list(batch.logit_rows)]
    token_ids = sample(drawn, batch.samples)
    num_top = [entry.params.num_top_logprobs for entry in batch.samples]
    return Drawn(
        token_ids, scores(drawn, token_ids, num_top), scores(scored, batch.scored_token_ids, batch.scored_num_top)
    )
