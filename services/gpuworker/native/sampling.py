"""What is drawn from the logits of a step, as the library takes it, and what it tells of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpuworker.core.batch import Batch
from gpuworker.core.steps import Drawn, Sample, Scores
from gpuworker.errors import LogitsNotFinite
from gpuworker.row_structs import NOT_FINITE, SampleParams
from gpuworker.sampling_rows import ROW, fill

_FLOAT32 = 0


@dataclass(slots=True)
class _Rules:
    """Columns of what forbids or shifts tokens; a row has a span of each."""

    masks: bytearray = field(default_factory=bytearray)
    allowed_token_ids: list[int] = field(default_factory=list)
    forbidden_token_ids: list[int] = field(default_factory=list)
    biased_token_ids: list[int] = field(default_factory=list)
    biases: list[float] = field(default_factory=list)
    seen_token_ids: list[int] = field(default_factory=list)
    output_counts: list[int] = field(default_factory=list)

    def add(self, sample: Sample, row: np.void, vocab_size: int) -> None:
        """Appends those of a sample and writes their spans into its row."""
        rules, history = sample.params.rules, sample.history
        mask_bytes = -(-vocab_size // 8)
        self._extend(row, "mask", self.masks, sample.mask.ljust(mask_bytes, b"\0")[:mask_bytes] if sample.mask else b"")
        if rules is None:
            return
        self._extend(row, "allowed", self.allowed_token_ids, rules.allowed_token_ids)
        self._extend(row, "forbidden", self.forbidden_token_ids, sample.forbidden_token_ids())
        self._extend(row, "biased", self.biased_token_ids, rules.biased_token_ids)
        self.biases += rules.biases
        if rules.has_penalty and history is not None:
            self._extend(row, "seen", self.seen_token_ids, history.distinct_token_ids)
            self.output_counts += history.output_counts
            row["repetition_penalty"] = rules.repetition_penalty
            row["frequency_penalty"] = rules.frequency_penalty
            row["presence_penalty"] = rules.presence_penalty

    def columns(self) -> tuple[npt.NDArray[np.generic] | None, ...]:
        """The columns as the library takes them; one that is empty is left out."""
        typed = (
            (self.masks, np.uint8),
            (self.allowed_token_ids, np.int64),
            (self.forbidden_token_ids, np.int64),
            (self.biased_token_ids, np.int64),
            (self.biases, np.float32),
            (self.seen_token_ids, np.int64),
            (self.output_counts, np.int64),
        )
        return tuple(np.array(column, dtype=dtype) if column else None for column, dtype in typed)

    @staticmethod
    def _extend(row: np.void, name: str, column: "bytearray | list[int]", values: Sequence[int]) -> None:
        row[f"{name}_start"] = len(column)
        column.extend(values)
        row[f"{name}_end"] = len(column)


class Sampling:
    """The samples of a batch, and then the known tokens that it scores; ``params`` is filled in by the library."""

    def __init__(self, batch: Batch, vocab_size: int) -> None:
        self._num_samples = len(batch.samples)
        rows, rules = _rows(batch, vocab_size)
        num_rows, num_top = len(rows), int(rows["num_top"].sum())
        self._num_top = rows["num_top"]
        self._token_ids = np.zeros(num_rows, dtype=np.int64)
        self._token_ids[self._num_samples :] = batch.scored_token_ids
        self._logprobs = np.empty(num_rows, dtype=np.float32)
        self._top_token_ids = np.empty(num_top, dtype=np.int64)
        self._top_logprobs = np.empty(num_top, dtype=np.float32)
        num_drawn = len(batch.sample_rows) - len(batch.scored_token_ids)
        logit_rows = np.array([*batch.logit_rows, *range(num_drawn, len(batch.sample_rows))], dtype=np.int64)
        self._columns = (logit_rows, rows, *rules.columns())
        results = (self._token_ids, self._logprobs, self._top_token_ids, self._top_logprobs)
        self.params = SampleParams(
            None,
            *(None if column is None else column.ctypes.data for column in self._columns),
            None,
            *(column.ctypes.data for column in results),
            len(batch.sample_rows),
            num_rows,
            vocab_size,
            _FLOAT32,
        )

    def drawn(self) -> Drawn:
        """What the library told. Raises ``LogitsNotFinite``, by sample."""
        token_ids = self._token_ids[: self._num_samples]
        not_finite = (token_ids == NOT_FINITE).nonzero()[0]
        if len(not_finite):
            raise LogitsNotFinite(not_finite.tolist())
        first_top = int(self._num_top[: self._num_samples].sum())
        return Drawn(
            token_ids.tolist(),
            self._scores(slice(0, self._num_samples), slice(0, first_top)),
            self._scores(slice(self._num_samples, None), slice(first_top, None)),
        )

    def _scores(self, rows: slice, tops: slice) -> Scores:
        top_token_ids = self._top_token_ids[tops].tolist()
        return Scores(
            self._logprobs[rows].tolist(),
            self._num_top[rows].tolist() if top_token_ids else (),
            top_token_ids,
            self._top_logprobs[tops].tolist(),
        )


def _rows(batch: Batch, vocab_size: int) -> tuple[npt.NDArray[np.void], _Rules]:
    """A row for each sample and each scored token, and the rules to which they point."""
    num_samples = len(batch.samples)
    rows, rules = np.zeros(num_samples + len(batch.scored_token_ids), dtype=ROW), _Rules()
    sampled, scored = rows[:num_samples], rows[num_samples:]
    fill(sampled, batch.samples)
    sampled["num_top"] = [sample.params.num_top_logprobs for sample in batch.samples]
    scored["is_known"] = 1
    scored["num_top"] = batch.scored_num_top
    rows["top_start"] = np.cumsum(rows["num_top"]) - rows["num_top"]
    for row, sample in zip(sampled, batch.samples, strict=True):
        if sample.is_ruled:
            rules.add(sample, row, vocab_size)
    return rows, rules
