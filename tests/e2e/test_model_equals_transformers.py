"""The default model computes what `transformers` computes on the same weights."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from doubles.tiny_llama import naive_logits, twin
from gpuworker.assembly import assemble
from gpuworker.core.batch import lay_out
from gpuworker.core.steps import BlockChanges, NewSequence, SamplingParams, Step, StepResult
from gpuworker.core.tables import BlockTables
from gpuworker.engine import Engine
from gpuworker.executor import Executor
from gpuworker.kernels import load_ops
from gpuworker.model.llama import Llama, cache_shape
from gpuworker.settings import Dtype, Settings
from gpuworker.weights.loading import open_weights
from gpuworker.weights.source import WeightSource
from scheduler.adapters.tokenizer import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPTS = Path(__file__).parent.parent / "data" / "prompts" / "self_instruct.jsonl"
NUM_OUTPUT_TOKENS = 64
BLOCK_SIZE = 16
TOKEN_BUDGET = 48  # small, so that prompts are prefilled in chunks beside decodes


@dataclass
class Sequence:
    """A prompt and what was drawn after it; ``num_computed`` of its tokens have KV."""

    sequence_id: int
    tokens: list[int]
    num_prompt_tokens: int
    num_computed: int = 0
    num_blocks: int = 0

    @property
    def is_done(self) -> bool:
        return len(self.tokens) == self.num_prompt_tokens + NUM_OUTPUT_TOKENS


@dataclass
class Driver:
    """Continuous batching at its simplest: decodes first, then chunks of prompts, blocks from the end of the pool."""

    engine: Engine
    sequences: list[Sequence]
    free: list[int] = field(default_factory=list)

    def run(self) -> int:
        """Computes every sequence to its end; the number of steps."""
        self.free = list(range(self.engine.identity.limits.num_device_blocks))
        step_id = 0
        while scheduled := list(self.schedule()):
            step_id += 1
            answer = self.engine.execute(self.step(step_id, scheduled))
            assert isinstance(answer, StepResult), answer
            sampled = dict(zip(answer.sequence_ids, answer.token_ids, strict=True))
            for sequence, count in scheduled:
                sequence.num_computed += count
                if sequence.sequence_id in sampled:
                    sequence.tokens.append(sampled[sequence.sequence_id])
        return step_id

    def schedule(self) -> Iterator[tuple[Sequence, int]]:
        budget = TOKEN_BUDGET
        running = [sequence for sequence in self.sequences if not sequence.is_done]
        for sequence in sorted(running, key=lambda sequence: len(sequence.tokens) - sequence.num_computed):
            count = min(budget, len(sequence.tokens) - sequence.num_computed)
            if count:
                budget -= count
                yield sequence, count

    def step(self, step_id: int, scheduled: list[tuple[Sequence, int]]) -> Step:
        ends = [sequence.num_computed + count for sequence, count in scheduled]
        grown = [(sequence, -(-end // BLOCK_SIZE)) for (sequence, _), end in zip(scheduled, ends, strict=True)]
        grown = [(sequence, num_blocks) for sequence, num_blocks in grown if num_blocks > sequence.num_blocks]
        counts = [num_blocks - sequence.num_blocks for sequence, num_blocks in grown]
        changes = BlockChanges(
            appended_sequence_ids=[sequence.sequence_id for sequence, _ in grown],
            appended_num_blocks=counts,
            appended_block_ids=[self.free.pop() for _ in range(sum(counts))],
        )
        for sequence, num_blocks in grown:
            sequence.num_blocks = num_blocks
        return Step(
            step_id=step_id,
            epoch=self.engine.epoch,
            changes=changes,
            new_sequences=[
                NewSequence(sequence.sequence_id, SamplingParams())
                for sequence, _ in scheduled
                if sequence.num_computed == 0
            ],
            sequence_ids=[sequence.sequence_id for sequence, _ in scheduled],
            num_tokens=[count for _, count in scheduled],
            positions=[sequence.num_computed for sequence, _ in scheduled],
            samples=[end == len(sequence.tokens) for (sequence, _), end in zip(scheduled, ends, strict=True)],
            token_ids=[
                token
                for (sequence, _), end in zip(scheduled, ends, strict=True)
                for token in sequence.tokens[sequence.num_computed : end]
            ],
        )


@pytest.fixture(scope="module")
def prompts(model_path) -> list[list[int]]:
    tokenizer = load_tokenizer(model_path)
    return [tokenizer.encode(json.loads(line)["prompt"]) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def source(model_path) -> WeightSource:
    return open_weights(model_path)


@pytest.fixture(scope="module")
def reference(source) -> LlamaForCausalLM:
    return twin(source)


def test_greedy_tokens_of_20_prompts_in_one_batch_are_those_of_transformers(model_path, prompts, reference):
    settings = Settings(
        listen="unused", model=model_path, worker_id="w", num_device_blocks=300, dtype=Dtype.FLOAT32, threads=1
    )
    sequences = [Sequence(index + 1, list(prompt), len(prompt)) for index, prompt in enumerate(prompts)]
    assert len(sequences) == 20
    num_steps = Driver(assemble(settings), sequences).run()
    assert num_steps < 2 * NUM_OUTPUT_TOKENS
    for sequence in sequences:
        # The most probable token after every prefix, so by induction the greedy continuation of the prompt.
        expected = naive_logits(reference, sequence.tokens[:-1], num_last=NUM_OUTPUT_TOKENS).argmax(dim=-1)
        assert sequence.tokens[sequence.num_prompt_tokens :] == expected.tolist()
    assert generate(reference, sequences[0].tokens[: sequences[0].num_prompt_tokens]) == sequences[0].tokens


def test_bfloat16_logits_differ_from_float32_by_less_than_one_percent(source, prompts, reference):
    prompts = prompts[:8]  # a CPU that does not multiply bfloat16 itself takes long
    exact = torch.cat([naive_logits(reference, prompt) for prompt in prompts])
    rounded = logits_of_every_row(source, prompts, torch.bfloat16).float()
    error = ((rounded - exact).norm() / exact.norm()).item()
    assert error < 0.01


def generate(reference: LlamaForCausalLM, prompt: list[int]) -> list[int]:
    """The prompt and its greedy continuation, by the loop of `transformers` itself."""
    token_ids = torch.tensor([prompt])
    generated = reference.generate(
        token_ids,
        attention_mask=torch.ones_like(token_ids),
        max_new_tokens=NUM_OUTPUT_TOKENS,
        min_new_tokens=NUM_OUTPUT_TOKENS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return generated[0].tolist()


def logits_of_every_row(source: WeightSource, prompts: list[list[int]], dtype: torch.dtype) -> torch.Tensor:
    """All prompts as one ragged batch: [num_tokens, vocab_size]."""
    ops = load_ops("cpu")
    counts = [-(-len(prompt) // BLOCK_SIZE) for prompt in prompts]
    pool = ops.allocate(cache_shape(source.config, sum(counts), BLOCK_SIZE), dtype)
    sequence_ids = range(1, len(prompts) + 1)
    tables = BlockTables(num_device_blocks=sum(counts), num_host_blocks=0)
    tables.apply(
        BlockChanges(
            appended_sequence_ids=sequence_ids, appended_num_blocks=counts, appended_block_ids=range(sum(counts))
        )
    )
    token_ids = [token for prompt in prompts for token in prompt]
    step = Step(
        1,
        1,
        sequence_ids=sequence_ids,
        num_tokens=[len(prompt) for prompt in prompts],
        positions=[0] * len(prompts),
        samples=[False] * len(prompts),
        token_ids=token_ids,
    )
    batch = lay_out(step, tables, {}, BLOCK_SIZE)
    model = Llama(source, dtype, max(map(len, prompts)))
    return Executor(model, ops, pool, pool).logits(replace(batch, sample_rows=range(len(token_ids))))
