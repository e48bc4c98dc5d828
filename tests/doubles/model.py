"""A gpuworker whose model is a checksum: each token depends on every token before it, read back from its KV memory."""

from collections.abc import Sequence
from functools import cache
from itertools import chain
from math import exp, log
from random import Random
from zlib import crc32

from kvmanager.core.plan import BlockChanges
from scheduler.core.steps import SAMPLED_TOKEN, Step, StepResult

VOCAB_SIZE = 97


def next_token(token_ids: Sequence[int], choice_index: int = 0) -> int:
    """The model: deterministic, sensitive to every token and to the choice."""
    return (crc32(repr(list(token_ids)).encode()) + 31 * choice_index) % VOCAB_SIZE


def logprob_of(token_id: int) -> float:
    """What the model says of a token."""
    return -token_id / 8


@cache
def distribution(token_ids: tuple[int, ...]) -> tuple[tuple[int, float], ...]:
    """The whole vocabulary with its log-probabilities after ``token_ids``, the most probable first."""
    random = Random(crc32(repr(token_ids).encode()))
    logits = [random.gauss(0.0, 2.0) for _ in range(VOCAB_SIZE)]
    total = log(sum(map(exp, logits)))
    return tuple(sorted(((t, logit - total) for t, logit in enumerate(logits)), key=lambda entry: -entry[1]))


def expected_output(
    prompt: Sequence[int], max_tokens: int, stop_token_ids: frozenset[int] = frozenset(), choice_index: int = 0
) -> list[int]:
    """What a choice of a request alone produces."""
    token_ids = list(prompt)
    while len(token_ids) < len(prompt) + max_tokens:
        token_ids.append(next_token(token_ids, choice_index))
        if token_ids[-1] in stop_token_ids:
            break
    return token_ids[len(prompt) :]


class ModelDouble:
    """KV of a token is the token itself, kept per block and slot."""

    def __init__(self, block_size: int, last_step_id: int = 0) -> None:
        self.block_size = block_size
        self.last_step_id = last_step_id
        self.results: dict[int, StepResult] = {}  # of the last two steps
        self.sampled: dict[int, tuple[int, int]] = {}  # sequence → position and token of its last sample
        self.tables: dict[int, list[int]] = {}
        self.choices: dict[int, int] = {}  # of the sequences that the worker was told about
        self.num_tops: dict[int, int] = {}  # likewise
        self.device: dict[int, list[int | None]] = {}  # block → tokens by slot
        self.host: dict[int, list[int | None]] = {}
        self.num_computed = 0

    def forget_sequences(self) -> None:
        self.tables.clear()
        self.choices.clear()
        self.sampled.clear()
        self.results.clear()

    def execute(self, step: Step) -> StepResult:
        if step.step_id in self.results:
            return self.results[step.step_id]
        assert step.step_id > self.last_step_id, "step ids rise"
        assert isinstance(step.changes, BlockChanges)
        self._change_tables(step.changes)
        self._move(step.changes)
        self.choices |= {new.sequence_id: new.choice_index for new in step.new_sequences}
        self.num_tops |= {new.sequence_id: new.sampling.num_top_logprobs for new in step.new_sequences}
        self._write(step)
        sampled = self._sample(step)
        self.num_computed += len(step.token_ids)
        self.last_step_id = step.step_id
        token_ids = [token_id for _, token_id, _ in sampled]
        tops = [*chain.from_iterable(top for _, _, top in sampled)]
        self.results.pop(step.step_id - 2, None)
        self.results[step.step_id] = StepResult(
            step.step_id,
            [sequence_id for sequence_id, _, _ in sampled],
            token_ids,
            [*map(logprob_of, token_ids)],
            num_top=[len(top) for _, _, top in sampled] if tops else (),
            top_token_ids=[token_id for token_id, _ in tops],
            top_logprobs=[logprob for _, logprob in tops],
        )
        return self.results[step.step_id]

    def _change_tables(self, changes: BlockChanges) -> None:
        for fork in changes.forks:
            assert fork.child_id not in self.tables
            self.tables[fork.child_id] = list(self.tables[fork.parent_id])
        for sequence_id in changes.dropped:
            del self.tables[sequence_id]
            self.choices.pop(sequence_id, None)
            self.sampled.pop(sequence_id, None)
        for sequence_id, index, block in zip(
            changes.replaced_sequence_ids, changes.replaced_indexes, changes.replaced_block_ids, strict=True
        ):
            self.tables[sequence_id][index] = block
        blocks = iter(changes.appended_block_ids)
        for sequence_id, num in zip(changes.appended_sequence_ids, changes.appended_num_blocks, strict=True):
            self.tables.setdefault(sequence_id, []).extend(next(blocks) for _ in range(num))

    def _move(self, changes: BlockChanges) -> None:
        for flat, sources, destinations in (
            (changes.swap_outs, self.device, self.host),
            (changes.swap_ins, self.host, self.device),
            (changes.copies, self.device, self.device),
        ):
            read = [list(sources[block]) for block in flat[::2]]  # all reads come first
            destinations.update(zip(flat[1::2], read, strict=True))

    def _write(self, step: Step) -> None:
        token_ids = iter(step.token_ids)
        written: set[tuple[int, int]] = set()
        for sequence_id, num, first in zip(step.sequence_ids, step.num_tokens, step.positions, strict=True):
            assert sequence_id in self.choices, "the worker was told about the sequence"
            for position in range(first, first + num):
                block, slot = self._slot(sequence_id, position)
                assert (block, slot) not in written, "two sequences write one slot"
                written.add((block, slot))
                token_id = next(token_ids)
                if token_id == SAMPLED_TOKEN:
                    sampled_at, token_id = self.sampled[sequence_id]
                    assert sampled_at == position, "the token that stands here was sampled in the step before"
                self.device.setdefault(block, [None] * self.block_size)[slot] = token_id

    def _sample(self, step: Step) -> list[tuple[int, int, tuple[tuple[int, float], ...]]]:
        sampled = []
        num_choices = step.num_choices or [1] * len(step.sequence_ids)
        rows = zip(step.sequence_ids, step.num_tokens, step.positions, step.samples, num_choices, strict=True)
        for sequence_id, num, position, samples, num_drawn in rows:
            if samples:
                slots = [self._slot(sequence_id, p) for p in range(position + num)]
                context = [self.device[block][slot] for block, slot in slots]
                choices = range(num_drawn) if num_drawn > 1 else (self.choices[sequence_id],)
                num_top = self.num_tops[sequence_id]
                top = distribution(tuple(context))[:num_top] if num_top else ()
                sampled += [(sequence_id, next_token(context, choice), top) for choice in choices]
                self.sampled[sequence_id] = (position + num, sampled[-1][1])
        return sampled

    def _slot(self, sequence_id: int, position: int) -> tuple[int, int]:
        index, slot = divmod(position, self.block_size)
        return self.tables[sequence_id][index], slot
