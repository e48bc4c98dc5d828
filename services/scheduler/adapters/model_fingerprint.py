"""A short name for what computes the answers, for `system_fingerprint`."""

import hashlib
from pathlib import Path

HEAD_BYTES = 1 << 20


def model_fingerprint(model: Path, version: str) -> str:
    """Changes with the server's version and with the names, sizes or beginnings of the model's files."""
    digest = hashlib.sha256(version.encode())
    for path in sorted(model.iterdir()) if model.is_dir() else [model]:
        if path.is_file():
            with path.open("rb") as file:
                digest.update(f"\0{path.name}\0{path.stat().st_size}\0".encode())
                digest.update(file.read(HEAD_BYTES))
    return f"fp_{digest.hexdigest()[:12]}"
