"""kvmanager processes and a Valkey of their own, and streams that talk to them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from doubles.valkey import ValkeyServer
from kvmanager.v1 import kvmanager_pb2 as pb
from kvmanager.v1.kvmanager_pb2_grpc import KVManagerStub


class Stream:
    """One ``Arbitrate`` stream."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel(address)
        self._call = KVManagerStub(self.channel).Arbitrate(wait_for_ready=True)

    async def ask(self, message: pb.OpenPool | pb.Plan) -> pb.PoolOpened | pb.Grant:
        is_plan = isinstance(message, pb.Plan)
        await self._call.write(pb.PoolRequest(plan=message) if is_plan else pb.PoolRequest(open=message))
        answer = await self._call.read()
        if answer is grpc.aio.EOF:
            raise asyncio.InvalidStateError("the stream ended without a status")
        if not is_plan:
            return answer.opened
        answer.grant.ClearField("journal_seconds")  # tells of this message, not of the step
        return answer.grant

    async def is_serving(self) -> bool:
        answer = await health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest())
        return answer.status == health_pb2.HealthCheckResponse.SERVING


class KVManagerProcess:
    """One ``python -m kvmanager``."""

    def __init__(self, folder: Path, redis_url: str, name: str) -> None:
        self.address = f"unix:{folder}/{name}.sock"
        self._log = folder / f"{name}.log"
        self._words = ["--listen", self.address, "--redis", redis_url, "--instance", name]
        self._process: asyncio.subprocess.Process | None = None
        self._streams: list[Stream] = []

    async def start(self, *words: str) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kvmanager", *self._words, *words),
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": "services"},
            )

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        status = await self._process.wait()
        self._process = None
        return status

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stream(self) -> Stream:
        self._streams.append(Stream(self.address))
        return self._streams[-1]

    async def until_serving(self, *, serving: bool = True) -> None:
        stream = self.stream()
        async with asyncio.timeout(20):
            while True:
                try:
                    if await stream.is_serving() == serving:
                        return
                except grpc.aio.AioRpcError:
                    pass
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        for stream in self._streams:
            await stream.channel.close()
        if self._process is not None:
            await self.end()

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def valkey(tmp_path: Path):
    server = ValkeyServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def new_process(tmp_path: Path) -> AsyncIterator[Callable[[str], KVManagerProcess]]:
    """Makes kvmanager processes by name; they end with the test."""
    processes = []

    def make(name: str) -> KVManagerProcess:
        processes.append(KVManagerProcess(tmp_path, f"unix://{tmp_path}/r.sock", name))
        return processes[-1]

    yield make
    for process in processes:
        await process.close()


@pytest.fixture
async def process(valkey, new_process) -> KVManagerProcess:
    """A kvmanager that serves."""
    process = new_process("k")
    await process.start()
    await process.until_serving()
    return process
