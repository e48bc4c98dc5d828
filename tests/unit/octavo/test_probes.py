import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from octavo.probes import probe


@asynccontextmanager
async def server(handle):
    """A server whose connections have all been handled when the block ends; yields its port."""
    handled = []

    async def accept(reader, writer):
        async def to_the_end():
            await handle(reader, writer)
            writer.close()
            await writer.wait_closed()

        handled.append(asyncio.create_task(to_the_end()))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]
        await asyncio.gather(*handled)


def answering(answer: bytes):
    """A server that gives every connection the same answer to its first line."""

    async def handle(reader, writer):
        await reader.readline()
        writer.write(answer)
        await writer.drain()

    return server(handle)


@asynccontextmanager
async def grpc_health(address, status):
    listening = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, listening)
    listening.add_insecure_port(address)
    await listening.start()
    await servicer.set("", status)
    try:
        yield
    finally:
        await listening.stop(None)


@pytest.mark.parametrize(
    ("status", "ready"),
    [(health_pb2.HealthCheckResponse.SERVING, True), (health_pb2.HealthCheckResponse.NOT_SERVING, False)],
)
async def test_a_grpc_service_is_ready_when_its_health_says_so(tmp_path, status, ready):
    address = f"unix:{tmp_path}/s.sock"
    async with grpc_health(address, status):
        answer = await probe(address)
    assert (answer.alive, answer.ready) == (True, ready)


@pytest.mark.parametrize(("line", "ready"), [(b"200 OK", True), (b"503 Service Unavailable", False)])
async def test_the_api_is_ready_when_its_route_says_so(line, ready):
    async with answering(b"HTTP/1.1 " + line + b"\r\nContent-Length: 0\r\n\r\n") as port:
        answer = await probe(f"http://127.0.0.1:{port}")
    assert (answer.alive, answer.ready, answer.detail) == (True, ready, f"HTTP {line[:3].decode()}")


@pytest.mark.parametrize(
    ("line", "ready"),
    [(b"+PONG", True), (b"-NOAUTH Authentication required.", True), (b"-LOADING the dataset", False)],
)
async def test_redis_is_ready_when_it_answers_a_ping_or_wants_a_password(line, ready):
    async with answering(line + b"\r\n") as port:
        answer = await probe(f"redis://127.0.0.1:{port}/0")
    assert (answer.alive, answer.ready) == (True, ready)


@pytest.mark.parametrize(
    "address", ["unix:{}/no.sock", "unix://{}/no.sock", "http://127.0.0.1:1", "redis://127.0.0.1:1"]
)
async def test_nobody_there_is_an_answer_not_an_exception(tmp_path, address):
    answer = await probe(address.format(tmp_path))
    assert (answer.alive, answer.ready) == (False, False)
    assert answer.detail


async def test_a_silent_service_is_given_up_after_the_timeout():
    async def say_nothing(reader, writer):
        await reader.read()

    async with server(say_nothing) as port:
        answer = await probe(f"http://127.0.0.1:{port}", timeout_s=0.1)
    assert answer.detail == "no answer within 0.1 s"
    assert not answer.alive
