"""Weights packed for the step: from the cache folder, or made from the model's files."""

import hashlib
import json
import logging
import os
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from gpuworker.huge_pages import map_huge_pages
from gpuworker.native.formats import WeightFormat, to_float32, to_format
from gpuworker.native.layout import Place, formats, lay_out, total_bytes
from gpuworker.native.library import StepLibrary
from gpuworker.native.packed_file import PackedWeights, file_name, read_packed, write_packed
from gpuworker.settings import Dtype, Weights
from gpuworker.weights.loading import content_digest
from gpuworker.weights.source import WeightSource

logger = logging.getLogger(__name__)

_PROBE_OUTPUTS, _PROBE_INPUTS = 40, 512


def load_packed(source: WeightSource, weights: Weights, dtype: Dtype, library: StepLibrary) -> PackedWeights:
    """The weights of ``source`` in the formats asked for.

    They are packed once and mapped from the cache folder from then on. Where the folder cannot be written, they are
    packed into memory at every start. Raises ``ModelUnreadable`` or ``KernelInputError`` if they cannot be packed.
    """
    places = lay_out(source, weights, dtype, library)
    key = _key(source, places, library)
    path = cache_folder() / file_name(source.path.stem, key)
    cached = read_packed(path, key)
    if cached is not None:
        return cached
    digest = content_digest(source)

    def fill(content: npt.NDArray[np.uint8]) -> None:
        for place in places:
            _pack(source, place, content[place.offset :][: place.num_bytes], library)

    try:
        write_packed(path, key, places, digest, fill)
    except OSError as error:
        logger.warning("packed weights are not kept for the next start: %s", error)
    else:
        written = read_packed(path, key)
        if written is not None:
            return written
    content = np.frombuffer(map_huge_pages(total_bytes(places)), np.uint8)
    fill(content)
    return PackedWeights(places, content, digest)


def cache_folder() -> Path:
    """``packed`` in ``$OCTAVO_CACHE_DIR``, ``$XDG_CACHE_HOME/octavo`` or ``~/.cache/octavo``."""
    own = os.environ.get("OCTAVO_CACHE_DIR")
    if own:
        return Path(own) / "packed"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "octavo" / "packed"


def _pack(source: WeightSource, place: Place, packed: npt.NDArray[np.uint8], library: StepLibrary) -> None:
    stored = source.stored(place.name)
    if place.weight_format is None:
        packed[:] = to_float32(stored.kind, stored.rows).view(np.uint8).ravel()
    else:
        library.pack(place.weight_format, to_format(stored, place.weight_format), place.num_inputs, packed)


def _key(source: WeightSource, places: tuple[Place, ...], library: StepLibrary) -> str:
    """Names what was packed and how: the files, the places, and what the library makes of known weights."""
    digest = hashlib.sha256()
    for path in source.files():
        state = path.stat()
        digest.update(json.dumps([str(path.resolve()), state.st_size, state.st_mtime_ns, state.st_ino]).encode())
    for place in places:
        digest.update(repr(place).encode())
    for weight_format in sorted(set(formats(places))):
        digest.update(_probe(weight_format, library))
    return digest.hexdigest()


def _probe(weight_format: WeightFormat, library: StepLibrary) -> bytes:
    """Some bytes, packed: they differ where an earlier version of the library packed differently."""
    block_inputs, block_bytes = gguf.GGML_QUANT_SIZES[weight_format.ggml_type]
    row_bytes = _PROBE_INPUTS // block_inputs * block_bytes
    rows = (np.arange(_PROBE_OUTPUTS * row_bytes) % 251).astype(np.uint8).reshape(_PROBE_OUTPUTS, row_bytes)
    num_bytes = library.packed_bytes(weight_format, _PROBE_OUTPUTS, _PROBE_INPUTS)
    packed = np.frombuffer(map_huge_pages(num_bytes), np.uint8)
    library.pack(weight_format, rows, _PROBE_INPUTS, packed)
    return packed.tobytes()
