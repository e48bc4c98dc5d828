"""A real server on a real socket: clients that go away, and shutdown."""

import asyncio
import json

import httpx
import pytest

from scheduler.api.server import listen
from scheduler.errors import InvalidConfiguration


async def until(condition, timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.005)


def raw_request(**fields) -> bytes:
    body = json.dumps({"prompt": "abc", "max_tokens": 40, **fields}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: octavo\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("num_prompts", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_chunks", [0, 2])
async def test_a_client_that_goes_away_ends_its_requests(serving, generator, stream, num_prompts, num_chunks):
    generator.gate.clear()
    async with serving() as (port, _, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw_request(prompt=["abc"] * num_prompts, stream=stream))
        await until(lambda: len(generator.running) == num_prompts)
        if stream and num_chunks:
            generator.gate.set()
            for _ in range(num_chunks):
                await reader.readuntil(b"\n\n")
            generator.gate.clear()
        writer.transport.abort()
        await until(lambda: not generator.running)


async def test_many_clients_that_go_away_leave_nothing_behind(serving, generator):
    async with serving() as (port, _, _), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

        async def come_and_go(i: int) -> None:
            body = {"prompt": "abc", "max_tokens": 40, "stream": True}
            async with client.stream("POST", "/v1/completions", json=body) as answer:
                async for _ in answer.aiter_bytes():
                    if i % 2:
                        return

        await asyncio.gather(*(come_and_go(i) for i in range(50)))
        await until(lambda: not generator.running)
        assert len(generator.accepted) == 50


async def test_a_stop_lets_streams_finish_and_refuses_new_work(serving, generator):
    generator.gate.clear()
    async with serving() as (port, signals, task), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        body = {"prompt": "abc", "max_tokens": 6, "stream": True}
        streams = [asyncio.create_task(client.post("/v1/completions", json=body)) for _ in range(3)]
        await until(lambda: len(generator.running) == 3)
        signals.receive()
        await until(lambda: not generator.readiness.ready)
        assert (await client.post("/v1/completions", json=body)).status_code == 503
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200
        generator.gate.set()
        for answer in await asyncio.gather(*streams):
            assert answer.text.endswith("data: [DONE]\n\n")
        await asyncio.wait_for(task, 5)


async def test_a_second_signal_does_not_wait_for_streams(serving, generator):
    generator.gate.clear()
    async with serving(drain_timeout_s=60) as (port, signals, task):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw_request(stream=True))
        await until(lambda: generator.running)
        signals.receive()
        signals.receive()
        await asyncio.wait_for(task, 10)
        assert generator.running == set()
        writer.close()


def test_an_address_in_use_is_named():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfiguration, match=f"--port {port}"):
            listen("127.0.0.1", port)
