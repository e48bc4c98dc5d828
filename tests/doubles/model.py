"""A gpuworker whose model is a checksum: each token depends on every token before it, read back from its KV memory."""

from collections.abc import Sequence
from zlib import crc32

from doubles.pool import Changes
from scheduler.core.steps import Step, StepResult

VOCAB_SIZE = 97


def next_token(token_ids: Sequence[int]) -> int:
    """The model: greedy, deterministic, sensitive to every token."""
    return crc32(repr(list(token_ids)).encode()) % VOCAB_SIZE


def expected_output(prompt: Sequence[int], max_tokens: int, stop_token_ids: frozenset[int] = frozenset()) -> list[int]:
    """What a request alone produces."""
    token_ids = list(prompt)
    while len(token_ids) < len(prompt) + max_tokens:
        token_ids.append(next_token(token_ids))
        if token_ids[-1] in stop_token_ids:
            break
    return token_ids[len(prompt) :]


class ModelDouble:
    """KV of a token is the token itself, kept per block and slot."""

    def __init__(self, block_size: int, last_step_id: int = 0) -> None:
        self.block_size = block_size
        self.last_step_id = last_step_id
        self.last_result: StepResult | None = None
        self.tables: dict[int, list[int]] = {}
        self.known: set[int] = set()
        self.kv: dict[tuple[int, int], int] = {}
        self.num_computed = 0

    def forget_sequences(self) -> None:
        self.tables.clear()
        self.known.clear()
        self.last_result = None

    def execute(self, step: Step) -> StepResult:
        if self.last_result is not None and step.step_id == self.last_step_id:
            return self.last_result
        assert step.step_id > self.last_step_id, "step ids rise"
        self._change_tables(step)
        sampled: list[tuple[int, int]] = []
        start = 0
        rows = list(zip(step.sequence_ids, step.num_tokens, step.positions, step.samples, strict=True))
        for sequence_id, num, position, _ in rows:
            assert sequence_id in self.known, "the worker was told about the sequence"
            for i, token_id in enumerate(step.token_ids[start : start + num]):
                self.kv[self._slot(sequence_id, position + i)] = token_id
            start += num
        for sequence_id, num, position, samples in rows:
            if samples:
                context = [self.kv[self._slot(sequence_id, p)] for p in range(position + num)]
                sampled.append((sequence_id, next_token(context)))
        self.num_computed += start
        self.last_step_id = step.step_id
        self.last_result = StepResult(step.step_id, [s for s, _ in sampled], [t for _, t in sampled])
        return self.last_result

    def _change_tables(self, step: Step) -> None:
        changes = step.changes
        assert isinstance(changes, Changes)
        for sequence_id in changes.dropped:
            self.tables.pop(sequence_id, None)
            self.known.discard(sequence_id)
        for sequence_id, index, block in changes.replaced:
            self.tables[sequence_id][index] = block
        for sequence_id, blocks in changes.appended:
            self.tables.setdefault(sequence_id, []).extend(blocks)
        self.known.update(new.sequence_id for new in step.new_sequences)

    def _slot(self, sequence_id: int, position: int) -> tuple[int, int]:
        index, slot = divmod(position, self.block_size)
        return self.tables[sequence_id][index], slot
