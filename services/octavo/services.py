"""The services of a local cluster: how each is started, asked and ended."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from octavo.data_folder import DataFolder
from octavo.redis_server import find_redis_server, redis_command
from octavo.settings import ClusterSettings

# Time that a service gets to end by itself after SIGTERM, before SIGKILL.
STOP_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Service:
    """One service, in the order of starting; it is ended in the reverse order."""

    name: str
    address: str  # as `octavo probe` reads it
    command: tuple[str, ...]  # empty: runs elsewhere, is only waited for
    stop_grace_s: float = STOP_GRACE_S
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # secrets, which no command line holds


def local_cluster(settings: ClusterSettings, model: Path, folder: DataFolder, admin_key: str) -> tuple[Service, ...]:
    """Redis, kvmanager, gpuworker and scheduler for ``settings``, talking over sockets in ``folder``.

    With ``settings.in_process`` Redis and a process that is the other three.
    """
    if settings.in_process:
        return _in_process_cluster(settings, model, folder, admin_key)
    kvmanager_address = f"unix:{folder.run / 'kvmanager.sock'}"
    worker_address = f"unix:{folder.run / 'gpuworker.sock'}"
    redis = _redis(settings, folder)
    kvmanager = Service(
        name="kvmanager",
        address=kvmanager_address,
        command=_python("kvmanager", {"listen": kvmanager_address, "redis": redis.address}),
    )
    gpuworker = Service(
        name="gpuworker",
        address=worker_address,
        command=_python("gpuworker", {"listen": worker_address, **_gpuworker_flags(settings, model)}),
    )
    links = {"kvmanager": kvmanager_address, "worker": worker_address}
    scheduler = Service(
        name="scheduler",
        address=f"http://{_url_host(settings.host)}:{settings.port}",
        command=_python("scheduler", {**links, **_scheduler_flags(settings, model)}),
        stop_grace_s=settings.drain_timeout_s + STOP_GRACE_S,
        environment=_secrets(settings, admin_key),
    )
    return redis, kvmanager, gpuworker, scheduler


def _in_process_cluster(
    settings: ClusterSettings, model: Path, folder: DataFolder, admin_key: str
) -> tuple[Service, ...]:
    inspection_address = f"unix:{folder.run / 'octavo.sock'}"
    redis = _redis(settings, folder)
    worker_words = _words({"listen": inspection_address, **_gpuworker_flags(settings, model)})
    links = {"kvmanager": inspection_address, "worker": inspection_address}
    scheduler_words = _words({**links, **_scheduler_flags(settings, model)})
    engine = Service(
        name="octavo",
        address=f"http://{_url_host(settings.host)}:{settings.port}",
        command=(sys.executable, "-m", "octavo.in_process", redis.address, *worker_words, "--", *scheduler_words),
        stop_grace_s=settings.drain_timeout_s + STOP_GRACE_S,
        environment=_secrets(settings, admin_key),
    )
    return redis, engine


def _redis(settings: ClusterSettings, folder: DataFolder) -> Service:
    if settings.redis is not None:
        return Service(name="redis", address=settings.redis, command=())
    socket = folder.run / "redis.sock"
    command = redis_command(find_redis_server(), socket, folder.redis)
    return Service(name="redis", address=f"unix://{socket}", command=tuple(command))


def _gpuworker_flags(settings: ClusterSettings, model: Path) -> dict[str, object]:
    return {
        "model": model,
        "worker-id": "local",
        "block-size": settings.block_size,
        "num-device-blocks": settings.num_device_blocks,
        "num-host-blocks": settings.num_host_blocks,
        "kv-memory": settings.kv_memory,
        "max-model-len": settings.max_model_len,
        "dtype": settings.dtype,
        "kernels": settings.kernels,
        "weights": settings.weights,
        "activations": settings.activations,
        "step": settings.step,
        "threads": settings.threads,
    }


def _scheduler_flags(settings: ClusterSettings, model: Path) -> dict[str, object]:
    return {
        "host": settings.host,
        "port": settings.port,
        "model": model,
        "served-model-name": settings.served_model_name,
        "max-num-batched-tokens": settings.max_num_batched_tokens,
        "max-num-seqs": settings.max_num_seqs,
        "preemption-mode": settings.preemption_mode,
        "max-model-len": settings.max_model_len,
        "scheduling-policy": settings.scheduling_policy,
        "max-waiting": settings.max_waiting,
        "max-waiting-tokens": settings.max_waiting_tokens,
        "queue-timeout": settings.queue_timeout_s,
        "drain-timeout": settings.drain_timeout_s,
    }


def _secrets(settings: ClusterSettings, admin_key: str) -> dict[str, str]:
    """A URL of Redis may hold a password."""
    api_keys = {} if settings.api_keys is None else {"OCTAVO_API_KEYS": settings.api_keys}
    return {"OCTAVO_ADMIN_KEY": admin_key, **api_keys}


def _python(module: str, flags: dict[str, object]) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *_words(flags))


def _words(flags: dict[str, object]) -> list[str]:
    return [word for name, value in flags.items() if value is not None for word in (f"--{name}", str(value))]


def _url_host(host: str) -> str:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what the user asked to listen on
    return f"[{reachable}]" if ":" in reachable else reachable
