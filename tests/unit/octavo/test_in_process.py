"""The engine in one process: how it ends when it cannot start."""

import subprocess
import sys
from pathlib import Path

import pytest

from doubles.tiny_llama import random_llama, write_gguf


@pytest.fixture
def model(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("OCTAVO_CACHE_DIR", str(tmp_path))
    return write_gguf(random_llama(), tmp_path / "tiny.gguf")


def start(tmp_path: Path, model: Path, *worker_flags: str) -> subprocess.CompletedProcess[str]:
    socket = f"unix:{tmp_path / 'octavo.sock'}"
    worker_words = ("--listen", socket, "--model", str(model), "--num-device-blocks", "4", *worker_flags)
    links = ("--kvmanager", socket, "--worker", socket)
    scheduler_words = (*links, "--model", str(model), "--host", "127.0.0.1", "--port", "0")
    command = (sys.executable, "-m", "octavo.in_process", "redis://127.0.0.1:1", *worker_words, "--", *scheduler_words)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--weights", "q8_0", "--step", "torch"), 2, "--weights is q8_0"),
        (("--num-host-blocks", str(1 << 60)), 1, "cannot map"),
        ((), 2, "tokenizer.ggml.model is None"),  # which the scheduler needs
    ],
)
def test_what_cannot_start_is_said_in_words_as_by_the_services(tmp_path, model, flags, code, message):
    done = start(tmp_path, model, *flags)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == code
