"""The official client, used as its documentation shows."""

import openai
import pytest

PROMPT = "The capital of France is"


@pytest.fixture
def client(cluster):
    with openai.OpenAI(base_url=f"{cluster.base_url}/v1", api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
def model(client) -> str:
    return client.models.list().data[0].id


def test_it_completes(client, model):
    completion = client.completions.create(model=model, prompt=PROMPT, max_tokens=8, temperature=0)
    assert "Paris" in completion.choices[0].text
    assert completion.choices[0].finish_reason == "length"
    assert completion.id.startswith("cmpl-")
    assert completion.object == "text_completion"
    assert completion.usage.completion_tokens == 8
    assert completion.usage.prompt_tokens_details.cached_tokens >= 0


def test_it_streams_with_usage(client, model):
    whole = client.completions.create(model=model, prompt=PROMPT, max_tokens=8, temperature=0)
    options = {"include_usage": True}
    with client.completions.create(
        model=model, prompt=PROMPT, max_tokens=8, temperature=0, stream=True, stream_options=options
    ) as stream:
        *chunks, last = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert last.choices == []
    assert last.usage.total_tokens == whole.usage.total_tokens


async def test_it_streams_many_at_once(cluster, model):
    import asyncio

    prompts = [f"{number} plus one is" for number in ("One", "Two", "Three", "Four")]
    async with openai.AsyncOpenAI(base_url=f"{cluster.base_url}/v1", api_key="unused", max_retries=0) as client:

        async def text(prompt: str) -> str:
            stream = await client.completions.create(
                model=model, prompt=prompt, max_tokens=6, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].text async for chunk in stream])

        together = await asyncio.gather(*map(text, prompts))
        alone = [await text(prompt) for prompt in prompts]
    assert together == alone


def test_a_client_that_stops_reading_is_forgotten(client, model):
    for _ in range(3):
        stream = client.completions.create(model=model, prompt=PROMPT, max_tokens=500, stream=True)
        next(iter(stream))
        stream.close()
    assert client.completions.create(model=model, prompt=PROMPT, max_tokens=4, temperature=0).choices[0].text


def test_errors_arrive_as_its_own_classes(client, model):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=model, prompt=PROMPT, temperature=3)
    assert refused.value.param == "temperature"
    assert "3" in refused.value.message
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="other", prompt=PROMPT)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="suffix"):
        client.completions.create(model=model, prompt=PROMPT, suffix="the end")
    with pytest.raises(openai.BadRequestError, match="prompt is empty"):
        client.completions.create(model=model, prompt="", stream=True)
    assert client.models.retrieve(model).id == model
