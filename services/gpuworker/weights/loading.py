"""From a path to a source of weights, and the name of what they compute."""

import hashlib
from pathlib import Path

import torch

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


def fingerprint(source: WeightSource, dtype: torch.dtype) -> bytes:
    """SHA-256 over what decides the KV content of a token: weights, configuration and type of the arithmetic."""
    digest = hashlib.sha256()
    for part in (repr(source.config), str(dtype)):
        digest.update(len(part).to_bytes(8, "little") + part.encode())
    for path in source.files():
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.digest()
