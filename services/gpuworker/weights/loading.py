"""From a path to a source of weights, and the name of what they compute."""

import hashlib
from pathlib import Path

from gpuworker.errors import ModelUnreadable
from gpuworker.weights.gguf import GGUFSource
from gpuworker.weights.safetensors import SafetensorsSource
from gpuworker.weights.source import WeightSource


def open_weights(path: Path) -> WeightSource:
    """The model at ``path``: a GGUF file, or a Hugging Face folder. Raises ``ModelUnreadable``."""
    if path.is_dir():
        return SafetensorsSource(path)
    if path.is_file():
        return GGUFSource(path)
    raise ModelUnreadable(f"{path}: there is no such file or folder; expected a .gguf file or a Hugging Face folder")


def content_digest(source: WeightSource) -> bytes:
    """SHA-256 over the content of the model's files."""
    digest = hashlib.sha256()
    for path in source.files():
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.digest()


def fingerprint(source: WeightSource, content: bytes, *arithmetic: str) -> bytes:
    """SHA-256 over what decides the KV content of a token: weights, configuration and kind of the arithmetic."""
    digest = hashlib.sha256(content)
    for part in (repr(source.config), *arithmetic):
        digest.update(len(part).to_bytes(8, "little") + part.encode())
    return digest.digest()
