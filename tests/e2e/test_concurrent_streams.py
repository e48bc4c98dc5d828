"""Memory that is too small for all does not change what anybody gets."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import openai

PROMPTS = Path(__file__).parent.parent / "data" / "prompts" / "self_instruct.jsonl"
NUM_STREAMS = 32
SMALL_POOL = {"block_size": 16, "num_device_blocks": 40, "num_host_blocks": 0, "max_num_seqs": 32}


@dataclass(frozen=True, slots=True)
class Call:
    """A greedy request with a length of its own."""

    prompt: str
    max_tokens: int


def calls() -> list[Call]:
    """32 calls of different lengths; together they need several times the small pool."""
    prompts = [json.loads(line)["prompt"] for line in PROMPTS.read_text().splitlines()]
    return [
        Call(f"{number}. {prompts[number % len(prompts)]}"[: 60 + 9 * number], 12 + (7 * number) % 29)
        for number in range(NUM_STREAMS)
    ]


async def streamed(client: openai.AsyncOpenAI, call: Call) -> str:
    stream = await client.completions.create(
        model="default", prompt=call.prompt, max_tokens=call.max_tokens, temperature=0, stream=True
    )
    return "".join([chunk.choices[0].text async for chunk in stream])


async def test_concurrent_streams_equal_the_same_requests_alone(start_cluster):
    cluster = start_cluster(**SMALL_POOL)
    async with openai.AsyncOpenAI(base_url=f"{cluster.base_url}/v1", api_key="unused", max_retries=0) as client:
        together = await asyncio.gather(*(streamed(client, call) for call in calls()))
        assert "gives way by recompute" in (cluster.data_dir / "logs" / "scheduler.log").read_text()
        alone = [await streamed(client, call) for call in calls()]
    assert together == alone
    assert sum(map(bool, alone)) > NUM_STREAMS // 2  # a model may end at once
