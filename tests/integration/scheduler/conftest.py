"""An engine on a real kvmanager process with a real Valkey; the worker's model is the checksum, served over gRPC."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path

import grpc
import pytest

from doubles.model import VOCAB_SIZE, ModelDouble
from doubles.peers import LetterTokenizer
from gpuworker.v1 import gpuworker_pb2 as pb
from gpuworker.v1.gpuworker_pb2_grpc import GPUWorkerServicer, add_GPUWorkerServicer_to_server
from kvmanager.core import plan as memory
from octavo.redis_server import find_redis_server, redis_command
from scheduler.adapters.grpc_memory import GrpcMemory
from scheduler.adapters.grpc_worker import GrpcWorker
from scheduler.core.request import SamplingParams
from scheduler.core.shape import SchedulerConfig
from scheduler.core.steps import BlockChanges, NewSequence, Step
from scheduler.engine import Engine, EngineConfig

BLOCK_SIZE = 4


class ModelServicer(GPUWorkerServicer):
    """A gpuworker with ``num_blocks`` blocks."""

    def __init__(self, num_blocks: int = 40) -> None:
        self.num_blocks = num_blocks
        self.epoch = 100
        self.model = ModelDouble(BLOCK_SIZE)

    def lose_memory(self) -> None:
        self.epoch += 1
        self.model = ModelDouble(BLOCK_SIZE)

    async def Run(self, requests: AsyncIterator[pb.WorkerRequest], context: object) -> AsyncIterator[pb.WorkerResponse]:  # noqa: N802
        async for request in requests:
            if request.HasField("attach"):
                if request.attach.forget_sequences:
                    self.model.forget_sequences()
                yield pb.WorkerResponse(description=self._description())
            elif request.step.epoch != self.epoch:
                yield pb.WorkerResponse(failure=pb.StepFailure(message="another epoch", epoch_is_stale=True))
            else:
                result = self.model.execute(step_from_wire(request.step))
                yield pb.WorkerResponse(
                    result=pb.StepResult(
                        step_id=result.step_id,
                        sequence_ids=result.sequence_ids,
                        token_ids=result.token_ids,
                        logprobs=result.logprobs,
                    )
                )

    def _description(self) -> pb.WorkerDescription:
        return pb.WorkerDescription(
            worker_id="w0",
            epoch=self.epoch,
            last_step_id=self.model.last_step_id,
            block_size=BLOCK_SIZE,
            num_device_blocks=self.num_blocks,
            num_host_blocks=self.num_blocks,
            max_model_len=256,
            vocab_size=VOCAB_SIZE,
            model_fingerprint=b"checksum",
        )


def step_from_wire(step: pb.Step) -> Step:
    changes = {field.name: getattr(step.changes, field.name) for field in fields(memory.BlockChanges)}
    sampling = SamplingParams()
    return Step(
        step_id=step.step_id,
        epoch=step.epoch,
        changes=BlockChanges(memory.BlockChanges(**changes)),
        new_sequences=[NewSequence(s.sequence_id, sampling, s.sampling.choice_index) for s in step.new_sequences],
        sequence_ids=step.sequence_ids,
        num_tokens=step.num_tokens,
        positions=step.positions,
        samples=step.samples,
        token_ids=step.token_ids,
        num_choices=step.num_choices,
    )


class Services:
    """Everything that runs; ``kill`` and ``start`` take processes away and bring them back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model_path = folder
        self.worker = ModelServicer()
        self.worker_address = f"unix:{folder}/w.sock"
        self.memory_address = f"unix:{folder}/m.sock"
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._server: grpc.aio.Server | None = None
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        config = EngineConfig(SchedulerConfig(16, 8), min_backoff_s=0.01, max_backoff_s=0.1)
        return Engine(GrpcWorker(self.worker_address), GrpcMemory(self.memory_address), LetterTokenizer(), config)

    async def start(self, name: str) -> None:
        socket = self.folder / "r.sock"
        commands = {
            "redis": redis_command(find_redis_server(), socket, self.folder),
            "kvmanager": [
                *(sys.executable, "-m", "kvmanager", "--listen", self.memory_address),
                *("--redis", f"unix://{socket}", "--log-level", "warning"),
            ],
            "gpuworker": [
                *(sys.executable, "-m", "gpuworker", "--listen", self.worker_address, "--model", str(self.model_path)),
                *("--num-device-blocks", "8", "--dtype", "float32", "--threads", "1", "--worker-id", "w0"),
            ],
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                *commands[name], stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": "services"}
            )

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        process = self._processes.pop(name)
        process.send_signal(number)
        return await process.wait()

    async def start_worker(self) -> None:
        self._server = grpc.aio.server()
        add_GPUWorkerServicer_to_server(self.worker, self._server)
        self._server.add_insecure_port(self.worker_address)
        await self._server.start()

    async def stop_worker(self) -> None:
        if self._server is not None:
            await self._server.stop(0)

    async def ready(self, engine: Engine | None = None) -> None:
        async with asyncio.timeout(60):
            while not (engine or self.engine).readiness.ready:  # noqa: ASYNC110 (readiness has no event)
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        await self.engine.close()
        await self.stop_worker()
        for name in ("gpuworker", "kvmanager", "redis"):
            if name in self._processes:
                await self.kill(name)


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    services = Services(tmp_path)
    try:
        await services.engine.start()  # first of all: it waits for what it needs
        await services.start("kvmanager")
        await services.start("redis")
        await services.start_worker()
        await services.ready()
        yield services
    finally:
        await services.close()


@pytest.fixture
async def real_services(tmp_path: Path, model_path: Path) -> AsyncIterator[Services]:
    """All services as processes, the default model among them."""
    services = Services(tmp_path)
    services.model_path = model_path
    try:
        for name in ("redis", "kvmanager", "gpuworker"):
            await services.start(name)
        await services.engine.start()
        await services.ready()
        yield services
    finally:
        await services.close()
