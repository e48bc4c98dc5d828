"""The container format GGUF, version 2 and 3: a header of typed fields, then tensors.

The library's own reader makes a numpy view per string, which takes seconds for a vocabulary of 50,000; a worker
needs no vocabulary, so this reader steps over arrays. The types, the sizes of their blocks and dequantization are the
library's.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import gguf
import numpy as np
import numpy.typing as npt

from gpuworker.errors import ModelUnreadable

Scalar = str | int | float | bool

_VERSIONS = (2, 3)
_PIECE_BLOCKS = 128  # the library works on 16 rows at a time: rows of this many blocks keep that inside the L2 cache
_SCALARS = {
    gguf.GGUFValueType.UINT8: "<B",
    gguf.GGUFValueType.INT8: "<b",
    gguf.GGUFValueType.UINT16: "<H",
    gguf.GGUFValueType.INT16: "<h",
    gguf.GGUFValueType.UINT32: "<I",
    gguf.GGUFValueType.INT32: "<i",
    gguf.GGUFValueType.FLOAT32: "<f",
    gguf.GGUFValueType.BOOL: "<?",
    gguf.GGUFValueType.UINT64: "<Q",
    gguf.GGUFValueType.INT64: "<q",
    gguf.GGUFValueType.FLOAT64: "<d",
}


@dataclass(frozen=True, slots=True)
class ArrayField:
    """An array in the header; its elements are not kept."""

    element_type: str
    length: int


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies. ``shape`` counts from the slowest axis, as torch does."""

    shape: tuple[int, ...]
    quantization: gguf.GGMLQuantizationType
    offset: int  # bytes from the start of the file
    num_bytes: int


class GGUFFile:
    """An open file: ``fields`` by key, ``tensors`` by name. Raises ``ModelUnreadable`` on what it cannot read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelUnreadable(f"{path}: cannot be opened: {error}") from error
        self._offset = 0
        self.fields: dict[str, Scalar | ArrayField] = {}
        self.tensors: dict[str, TensorEntry] = {}
        try:
            self._read_header()
        except (struct.error, OverflowError) as error:  # an offset past the end, or past any end
            raise ModelUnreadable(f"{path}: the file ends inside its header, at byte {len(self._data)}") from error

    def dequantize(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor ``name`` in float32, whatever type it has in the file. Shape as in ``tensors``."""
        entry = self.tensors[name]
        raw = np.frombuffer(self._data, np.uint8, entry.num_bytes, entry.offset)
        piece_bytes = _PIECE_BLOCKS * gguf.GGML_QUANT_SIZES[entry.quantization][1]
        if entry.num_bytes % piece_bytes == 0:
            raw = raw.reshape(-1, piece_bytes)
        try:
            values: npt.NDArray[np.float32] = gguf.dequantize(raw, entry.quantization)
        except NotImplementedError as error:
            raise ModelUnreadable(
                f"{self.path}: tensor {name} has type {entry.quantization.name}, which cannot be dequantized"
            ) from error
        return values.reshape(entry.shape)

    def rows(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of the tensor ``name`` as they are in the file, [num_rows, row_bytes]; a vector is one row."""
        entry = self.tensors[name]
        raw = np.frombuffer(self._data, np.uint8, entry.num_bytes, entry.offset)
        return raw.reshape(entry.shape[0] if len(entry.shape) > 1 else 1, -1)

    def _read_header(self) -> None:
        magic = self._data[:4]
        if magic != b"GGUF":
            self._fail(f"the first bytes are {magic!r}, but a GGUF file starts with b'GGUF'")
        self._offset = 4
        version = self._read("<I")
        if version not in _VERSIONS:
            self._fail(f"version is {version}, but {_VERSIONS} are supported")
        num_tensors, num_fields = self._read("<Q"), self._read("<Q")
        for _ in range(num_fields):
            key = self._read_string()
            self.fields[key] = self._read_value(key)
        entries = [self._read_entry() for _ in range(num_tensors)]
        alignment = self.fields.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            self._fail(f"general.alignment is {alignment}, but must be at least 1")
        start = -(-self._offset // alignment) * alignment
        for name, shape, quantization, offset in entries:
            self.tensors[name] = self._place(name, shape, quantization, start + offset)

    def _place(
        self, name: str, shape: tuple[int, ...], quantization: gguf.GGMLQuantizationType, offset: int
    ) -> TensorEntry:
        block_size, block_bytes = gguf.GGML_QUANT_SIZES[quantization]
        if not shape or shape[-1] % block_size:
            self._fail(
                f"tensor {name} has shape {shape}, but rows of {quantization.name} are multiples of {block_size}"
            )
        num_bytes = int(np.prod(shape, dtype=np.uint64)) // block_size * block_bytes
        if offset + num_bytes > len(self._data):
            self._fail(f"tensor {name} ends at byte {offset + num_bytes}, but the file has {len(self._data)} bytes")
        return TensorEntry(shape, quantization, offset, num_bytes)

    def _read_entry(self) -> tuple[str, tuple[int, ...], gguf.GGMLQuantizationType, int]:
        name = self._read_string()
        shape = tuple(self._read("<Q") for _ in range(self._read("<I")))[::-1]
        type_id = self._read("<I")
        try:
            quantization = gguf.GGMLQuantizationType(type_id)
        except ValueError:
            self._fail(f"tensor {name} has the unknown type {type_id}")
        return name, shape, quantization, self._read("<Q")

    def _read_value(self, key: str) -> Scalar | ArrayField:
        value_type = self._read_type(key)
        if value_type == gguf.GGUFValueType.STRING:
            return self._read_string()
        if value_type != gguf.GGUFValueType.ARRAY:
            value: Scalar = struct.unpack_from(_SCALARS[value_type], self._data, self._offset)[0]
            self._offset += struct.calcsize(_SCALARS[value_type])
            return value
        element_type, length = self._read_type(key), self._read("<Q")
        if element_type == gguf.GGUFValueType.STRING:
            self._skip_strings(length)
        elif element_type in _SCALARS:
            self._offset += length * struct.calcsize(_SCALARS[element_type])
        else:
            self._fail(f"field {key} is an array of arrays, which is not supported")
        return ArrayField(element_type.name, length)

    def _read_type(self, key: str) -> gguf.GGUFValueType:
        type_id = self._read("<I")
        try:
            return gguf.GGUFValueType(type_id)
        except ValueError:
            self._fail(f"field {key} has the unknown type {type_id}")

    def _skip_strings(self, count: int) -> None:
        read_length, offset = struct.Struct("<Q").unpack_from, self._offset
        for _ in range(count):
            offset += 8 + read_length(self._data, offset)[0]
        self._offset = offset

    def _read_string(self) -> str:
        length = self._read("<Q")
        start, self._offset = self._offset, self._offset + length
        if self._offset > len(self._data):
            self._fail(f"a text of {length} bytes at byte {start} goes past the end of the file")
        return self._data[start : self._offset].decode("utf-8", errors="replace")

    def _read(self, layout: str) -> int:
        value: int = struct.unpack_from(layout, self._data, self._offset)[0]
        self._offset += struct.calcsize(layout)
        return value

    def _fail(self, what: str) -> NoReturn:
        raise ModelUnreadable(f"{self.path}: {what}")
