"""Packed weights on the disk, mapped by the next start.

    header   magic, SHA-256 of the rest, length, JSON: key, digest of the model's files, places, checksum; whole pages
    content  the tensors at their places

A file that is not whole or was changed, that another version wrote or that was made from other files is not used.
"""

import hashlib
import json
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuworker.native.formats import WeightFormat
from gpuworker.native.layout import Place, total_bytes

_MAGIC = b"OCTPACK2"
_FIXED_BYTES = len(_MAGIC) + hashlib.sha256().digest_size + 4
_PAGE_BYTES = 4096
_MAX_FILES = 8
_SUFFIX = ".packed"
_UNFINISHED = ".packing-"
_ABANDONED_S = 24 * 3600.0  # nobody packs for so long: the process was killed

Fill = Callable[[npt.NDArray[np.uint8]], None]
"""Writes every tensor to its place."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeights:
    """Packed tensors in memory."""

    places: tuple[Place, ...]
    content: npt.NDArray[np.uint8]  # starts at a multiple of 64
    content_digest: bytes  # SHA-256 over the model's files


def read_packed(path: Path, key: str) -> PackedWeights | None:
    """The packed weights at ``path`` if they are whole and are those that ``key`` names; else None."""
    try:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = _read_header(mapping)
        os.utime(path)  # the least recently used file goes first
    except (OSError, ValueError):
        return None
    if header is None or header["key"] != key:
        return None
    places = tuple(_place(entry) for entry in header["places"])
    start = header["start"]
    if len(mapping) != start + total_bytes(places):
        return None
    content = np.frombuffer(mapping, np.uint8, offset=start)
    if _checksum(content) != header["checksum"]:
        return None
    return PackedWeights(places, content, bytes.fromhex(header["content_digest"]))


def write_packed(path: Path, key: str, places: tuple[Place, ...], content_digest: bytes, fill: Fill) -> None:
    """Writes the file in one move, and removes the least recently used ones beyond eight. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = _header(key, places, content_digest, "0" * 64)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_UNFINISHED) as folder:
        unfinished = Path(folder) / path.name
        with unfinished.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, len(header) + total_bytes(places))
            mapping = mmap.mmap(file.fileno(), 0)
            content = np.frombuffer(mapping, np.uint8, offset=len(header))
            fill(content)
            mapping[: len(header)] = _header(key, places, content_digest, _checksum(content))
            mapping.flush()
        unfinished.replace(path)
    _remove_old(path)


def file_name(model_name: str, key: str) -> str:
    """Name of the file for a model and a key."""
    return f"{model_name}-{key[:16]}{_SUFFIX}"


def _header(key: str, places: tuple[Place, ...], content_digest: bytes, checksum: str) -> bytes:
    values = {
        "key": key,
        "content_digest": content_digest.hex(),
        "places": [asdict(place) for place in places],
        "checksum": checksum,
    }
    start = -(-(_FIXED_BYTES + len(json.dumps(values)) + 64) // _PAGE_BYTES) * _PAGE_BYTES
    body = json.dumps({**values, "start": start}).encode()
    body = len(body).to_bytes(4, "little") + body
    return (_MAGIC + hashlib.sha256(body).digest() + body).ljust(start, b"\0")


def _read_header(mapping: mmap.mmap) -> dict[str, Any] | None:
    digest = mapping[len(_MAGIC) : _FIXED_BYTES - 4]
    length = mapping[_FIXED_BYTES - 4 : _FIXED_BYTES]
    body = mapping[_FIXED_BYTES : _FIXED_BYTES + int.from_bytes(length, "little")]
    if mapping[: len(_MAGIC)] != _MAGIC or hashlib.sha256(length + body).digest() != digest:
        return None
    header: dict[str, Any] = json.loads(body)
    return header


def _place(entry: dict[str, Any]) -> Place:
    kind = entry.pop("weight_format")
    return Place(weight_format=None if kind is None else WeightFormat(kind), **entry)


def _checksum(content: npt.NDArray[np.uint8]) -> str:
    """SHA-256 over the sums of all pages: at the speed of memory, where a digest of the bytes would take seconds."""
    num_whole_bytes = len(content) // _PAGE_BYTES * _PAGE_BYTES
    pages = content[:num_whole_bytes].view(np.uint64).reshape(-1, _PAGE_BYTES // 8)
    digest = hashlib.sha256(np.add.reduce(pages, axis=1).tobytes())
    digest.update(content[num_whole_bytes:].tobytes())
    return digest.hexdigest()


def _remove_old(newest: Path) -> None:
    others = [path for path in newest.parent.glob(f"*{_SUFFIX}") if path != newest]
    for path in sorted(others, key=_changed_at, reverse=True)[_MAX_FILES - 1 :]:
        path.unlink(missing_ok=True)
    for folder in newest.parent.glob(f"{_UNFINISHED}*"):
        if _changed_at(folder) < time.time() - _ABANDONED_S:
            shutil.rmtree(folder, ignore_errors=True)


def _changed_at(path: Path) -> float:
    """Now, if another process has removed it meanwhile."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()
