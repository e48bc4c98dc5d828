"""Composition root: the one place where the scheduler's parts are put together."""

import asyncio
import logging
import signal
import time
from dataclasses import dataclass

import uvloop

from scheduler.adapters.chat_template_source import load_chat_template
from scheduler.adapters.grammar import load_grammar_compiler
from scheduler.adapters.grpc_inspector import GrpcPoolInspector, GrpcWorkerInspector
from scheduler.adapters.grpc_memory import GrpcMemory
from scheduler.adapters.grpc_worker import GrpcWorker
from scheduler.adapters.key_source import key_source
from scheduler.adapters.model_fingerprint import model_fingerprint
from scheduler.adapters.tokenizer import load_tokenizer
from scheduler.api.access import Access
from scheduler.api.app import create_app, octavo_version
from scheduler.api.completions import CompletionService
from scheduler.api.models import ServedModel
from scheduler.api.server import StopSignals, listen, serve
from scheduler.command import command
from scheduler.core.queue_limits import QueueLimits
from scheduler.core.shape import SchedulerConfig
from scheduler.engine import Administration, Engine, EngineConfig
from scheduler.inspection.ports import PoolInspector, WorkerInspector
from scheduler.metrics import Exposition, Instruments, MeasuredGenerator, MeasuredMemory, MeasuredWorker
from scheduler.ports import Memory, Worker
from scheduler.settings import Settings

logger = logging.getLogger("scheduler")


def run(settings: Settings) -> int:
    """Serves until SIGTERM or SIGINT and returns the exit code."""
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve_over_grpc(settings))
    return 0


@dataclass(frozen=True, slots=True)
class Peers:
    """How the other services are asked."""

    worker: Worker
    memory: Memory
    pools: PoolInspector
    tables: WorkerInspector


async def _serve_over_grpc(settings: Settings) -> None:
    worker, memory = GrpcWorker(settings.worker), GrpcMemory(settings.kvmanager)
    pools, tables = GrpcPoolInspector(settings.kvmanager), GrpcWorkerInspector(settings.worker)
    await serve_until_stopped(settings, Peers(worker, memory, pools, tables))


async def serve_until_stopped(settings: Settings, peers: Peers) -> None:
    """Listens before it connects, so that liveness answers while readiness says what is waited for."""
    with listen(settings.host, settings.port) as listener:
        signals = StopSignals()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, signals.receive)
        tokenizer = load_tokenizer(settings.model)
        instruments = Instruments()
        worker = MeasuredWorker(peers.worker, instruments, time.perf_counter)
        memory = MeasuredMemory(peers.memory, instruments, time.perf_counter)
        engine = Engine(worker, memory, tokenizer, engine_config(settings))
        generator = MeasuredGenerator(engine, instruments, time.monotonic)
        fingerprint = model_fingerprint(settings.model, octavo_version())
        model = ServedModel(settings.served_model_name, int(time.time()), fingerprint)
        template = load_chat_template(settings.model, tokenizer.special_tokens)
        grammars = await asyncio.to_thread(load_grammar_compiler, tokenizer.library_tokenizer, tokenizer.eos_token_ids)
        keys = None if settings.api_keys is None else key_source(settings.api_keys)
        admin = Administration(engine.replica, peers.pools, peers.tables)
        service = CompletionService(generator, tokenizer, model, settings.max_body_bytes, grammars)
        metrics = Exposition(instruments, admin)
        app = create_app(service, admin, Access(keys, settings.admin_key), template, metrics.page)
        await engine.start()
        try:
            host, port = listener.getsockname()[:2]
            logger.info("serving %s on %s port %d", model.name, host, port)
            await serve(app, listener, engine, signals, settings.drain_timeout)
        finally:
            await engine.close()
            await admin.close()
            if keys is not None:
                await keys.close()
        logger.info("stopped")


def engine_config(settings: Settings) -> EngineConfig:
    """The settings that the engine looks at."""
    return EngineConfig(
        scheduler=SchedulerConfig(
            settings.max_num_batched_tokens,
            settings.max_num_seqs,
            settings.preemption_mode,
            settings.scheduling_policy,
        ),
        max_model_len=settings.max_model_len,
        queue=QueueLimits(settings.max_waiting, settings.max_waiting_tokens),
        queue_timeout_s=settings.queue_timeout,
        overlaps=settings.overlap,
    )


app = command(run)
