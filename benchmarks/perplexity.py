"""Perplexity of a text by the way in which a worker keeps its weights: ``python benchmarks/perplexity.py``.

A worker's engine is asked, in process, for the log-probability of every token of the text after those before it in its
window. What quantizing costs is the difference between two lines; the first one, in float32, is what the others are
compared with.
"""

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuworker.assembly import assemble
from gpuworker.core.steps import BlockChanges, BlockId, SequenceId, Step, StepResult
from gpuworker.engine import Engine
from gpuworker.settings import Activations, Dtype, Settings, StepKind, Weights
from octavo import catalog
from scheduler.adapters.tokenizer import load_tokenizer

TEXT = Path(__file__).parent / "data" / "sonnet.txt"
WINDOW = 512  # tokens


@dataclass(frozen=True, slots=True)
class Way:
    """How a worker computes."""

    step: StepKind
    weights: Weights
    dtype: Dtype
    activations: Activations = Activations.FLOAT

    def __str__(self) -> str:
        return f"{self.step}, weights {self.weights}, activations {self.activations}, KV {self.dtype}"


WAYS = (
    Way(StepKind.TORCH, Weights.AUTO, Dtype.FLOAT32),
    Way(StepKind.NATIVE, Weights.FLOAT32, Dtype.FLOAT32),
    Way(StepKind.NATIVE, Weights.BFLOAT16, Dtype.BFLOAT16),
    Way(StepKind.NATIVE, Weights.Q8_0, Dtype.BFLOAT16),
    Way(StepKind.NATIVE, Weights.PACKED, Dtype.BFLOAT16),
    Way(StepKind.NATIVE, Weights.PACKED, Dtype.BFLOAT16, Activations.INT8),
)


def perplexity(engine: Engine, token_ids: Sequence[int], window: int = WINDOW) -> float:
    """Of the tokens after the first one of each window; every window is one step of a sequence of its own."""
    logprobs = [logprob for part in _windows(token_ids, window) for logprob in _score(engine, part)]
    return math.exp(-sum(logprobs) / len(logprobs))


def engine_for(model: Path, way: Way, threads: int | None = None) -> Engine:
    """A worker's engine with room for one window."""
    return assemble(
        Settings(
            listen="unused",
            model=model,
            worker_id="perplexity",
            num_device_blocks=WINDOW // 16,
            num_host_blocks=0,
            max_model_len=WINDOW,
            dtype=way.dtype,
            weights=way.weights,
            activations=way.activations,
            step=way.step,
            threads=threads,
        )
    )


def _windows(token_ids: Sequence[int], window: int) -> Iterator[Sequence[int]]:
    parts = (token_ids[start : start + window] for start in range(0, len(token_ids), window))
    return (part for part in parts if len(part) > 1)


def _score(engine: Engine, token_ids: Sequence[int]) -> Sequence[float]:
    sequence_id, num_tokens = SequenceId(1), len(token_ids)
    num_blocks = -(-num_tokens // engine.identity.limits.block_size)
    step = Step(
        step_id=engine.last_step_id + 1,
        epoch=engine.epoch,
        changes=BlockChanges(
            dropped=(sequence_id,),
            appended_sequence_ids=(sequence_id,),
            appended_num_blocks=(num_blocks,),
            appended_block_ids=[BlockId(block_id) for block_id in range(num_blocks)],
        ),
        sequence_ids=(sequence_id,),
        num_tokens=(num_tokens,),
        positions=(0,),
        samples=(False,),
        token_ids=token_ids,
        scored_rows=range(num_tokens - 1),
        scored_token_ids=token_ids[1:],
        scored_num_top=[0] * (num_tokens - 1),
    )
    answer = engine.execute(step)
    if not isinstance(answer, StepResult):
        raise RuntimeError(answer.message)
    return answer.scored_logprobs


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=catalog.DEFAULT_MODEL, help="catalogue name or path")
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--tokens", type=int, help="of the text's beginning [default: all]")
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    model = catalog.locate(asked.model)
    token_ids = load_tokenizer(model).encode(asked.text.read_text(encoding="utf-8"))[: asked.tokens]
    first = None
    for way in WAYS:
        value = perplexity(engine_for(model, way, asked.threads), token_ids)
        first = first or value
        print(f"{value:9.4f}  {value / first - 1:+8.3%}  {way}")


if __name__ == "__main__":
    main()
