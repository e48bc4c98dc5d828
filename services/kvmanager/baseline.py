"""``python -m kvmanager.baseline``: a kvmanager that keeps memory as the paper's Orca baselines do (§6.1).

For comparisons only. It speaks ``Arbitrate`` alone, has no journal (a restart forgets everything) and cannot be looked
into; where its slots are is written to a file after each step.
"""

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kvmanager.baseline_servicer import Baseline, BaselineServicer, NoPools
from kvmanager.core.spaces.memory_space import Estimate
from kvmanager.core.spaces.served import KnownOutputs
from kvmanager.v1 import inspection_pb2_grpc, kvmanager_pb2_grpc
from kvmanager.v1 import kvmanager_pb2 as pb

app = typer.Typer(add_completion=False)


@app.command()
def baseline(
    listen: Annotated[str, typer.Option(help="gRPC address: unix:/path.sock or host:port.")],
    estimate: Annotated[Estimate, typer.Option(help="How many output tokens are reserved for.")],
    max_model_len: Annotated[int, typer.Option(min=1, help="Tokens of prompt and output together.")],
    outputs: Annotated[
        Path, typer.Option(exists=True, help="JSON object: output tokens by the number of prompt tokens.")
    ],
    occupancy: Annotated[Path, typer.Option(help="File that tells after each step where the slots are, as JSON.")],
) -> None:
    """Keeps KV memory in contiguous chunks, reserved when a request enters. For comparisons only."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    known = {int(num_prompt): num_output for num_prompt, num_output in json.loads(outputs.read_text()).items()}
    asyncio.run(_serve(listen, Baseline(estimate, KnownOutputs(known, max_model_len), occupancy)))


async def _serve(listen: str, kept: Baseline) -> None:
    """Serves until SIGTERM or SIGINT."""
    server = aio.server()
    kvmanager_pb2_grpc.add_KVManagerServicer_to_server(BaselineServicer(kept), server)
    inspector = NoPools()  # type: ignore[abstract] # what it lacks answers UNIMPLEMENTED, as generated
    inspection_pb2_grpc.add_InspectorServicer_to_server(inspector, server)
    healthy = health.aio.HealthServicer()  # type: ignore[attr-defined] # the stubs lack it
    service = pb.DESCRIPTOR.services_by_name["KVManager"].full_name
    for name in ("", service):
        await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    server.add_insecure_port(listen)
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.stop(grace=None)


if __name__ == "__main__":
    app()
