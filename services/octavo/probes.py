"""Ask a service whether it lives and whether it is ready."""

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

DEFAULT_REDIS_PORT = 6379


@dataclass(frozen=True, slots=True)
class Health:
    """A service's answer. ``alive``: it answered. ``ready``: it can do its work. ``detail``: in its words."""

    alive: bool
    ready: bool
    detail: str


async def probe(address: str, timeout_s: float = 2.0) -> Health:
    """Ask the service at ``address`` and never raise.

    ``http(s)://…`` is asked for ``/ready``, ``redis(s)://…`` and ``unix://…`` are Redis URLs, anything else is a gRPC
    target (``unix:/path`` or ``host:port``) that serves ``grpc.health.v1``.
    """
    scheme = address.partition("://")[0] if "://" in address else "grpc"
    ask = {"http": _ask_http, "https": _ask_http, "redis": _ask_redis, "rediss": _ask_redis, "unix": _ask_redis}
    try:
        async with asyncio.timeout(timeout_s):
            return await ask.get(scheme, _ask_grpc)(address)
    except TimeoutError:
        return Health(alive=False, ready=False, detail=f"no answer within {timeout_s:g} s")


async def _ask_http(address: str) -> Health:
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=None) as client:  # noqa: S113 - probe() bounds it
            answer = await client.get(f"{address.rstrip('/')}/ready")
    except httpx.HTTPError as fault:
        return Health(alive=False, ready=False, detail=str(fault) or type(fault).__name__)
    return Health(alive=True, ready=answer.is_success, detail=f"HTTP {answer.status_code}")


async def _ask_grpc(address: str) -> Health:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=""))
        except grpc.aio.AioRpcError as fault:
            return Health(alive=False, ready=False, detail=fault.code().name)
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    return Health(alive=True, ready=serving, detail=health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


async def _ask_redis(address: str) -> Health:
    try:
        reader, writer = await _connect(address)
    except OSError as fault:
        return Health(alive=False, ready=False, detail=fault.strerror or str(fault))
    try:
        writer.write(b"PING\r\n")
        answer = (await reader.readline()).decode(errors="replace").strip()
    except OSError as fault:
        return Health(alive=False, ready=False, detail=fault.strerror or str(fault))
    finally:
        writer.close()
    # A server that wants a password first is up; the kvmanager has the password.
    return Health(alive=bool(answer), ready=answer.startswith(("+PONG", "-NOAUTH")), detail=answer or "closed")


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = urlsplit(address)
    if url.scheme == "unix":
        return await asyncio.open_unix_connection(url.path)
    return await asyncio.open_connection(
        url.hostname or "localhost", url.port or DEFAULT_REDIS_PORT, ssl=True if url.scheme == "rediss" else None
    )
