"""A GGUF file's metadata without its tensors.

The reader of the `gguf` library makes one array object per string, which takes seconds for a usual vocabulary. This
one makes strings, in tens of milliseconds.
"""

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path

from scheduler.errors import InvalidConfiguration

Value = bool | int | float | str | list["Value"]

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
STRING = 8
ARRAY = 9
SCALAR_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
SCALARS: Mapping[int, struct.Struct] = {type_id: struct.Struct("<" + code) for type_id, code in SCALAR_CODES.items()}
UINT32 = SCALARS[4]
UINT64 = SCALARS[10]


def read_gguf_metadata(path: Path) -> dict[str, Value]:
    """All key-value pairs of the file, in its order.

    Raises ``InvalidConfiguration`` for a file that is no GGUF, ends too early or has an unknown version or type.
    """
    with path.open("rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise InvalidConfiguration(f"model {path}: the file is empty") from None
        with content:
            try:
                return _Cursor(content).header()
            except (struct.error, UnicodeDecodeError, _Malformed) as error:
                raise InvalidConfiguration(f"model {path}: not a readable GGUF file: {error}") from None


class _Malformed(Exception):
    """Says what is wrong."""


class _Cursor:
    """Reads values one after the other from little-endian bytes."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._offset = 0

    def header(self) -> dict[str, Value]:
        magic = self._content[:4]
        if magic != MAGIC:
            raise _Malformed(f"it starts with {magic!r}, not with {MAGIC!r}")
        self._offset = 4
        version = self._integer(UINT32)
        if version not in SUPPORTED_VERSIONS:
            raise _Malformed(f"version {version}; supported are {SUPPORTED_VERSIONS}")
        self._integer(UINT64)  # number of tensors
        num_pairs = self._integer(UINT64)
        return {self._string(): self._value(self._integer(UINT32)) for _ in range(num_pairs)}

    def _value(self, type_id: int) -> Value:
        if type_id == STRING:
            return self._string()
        if type_id == ARRAY:
            return self._array()
        return self._scalars(type_id, 1)[0]

    def _array(self) -> list[Value]:
        type_id = self._integer(UINT32)
        length = self._integer(UINT64)
        if length > len(self._content):
            raise _Malformed(f"an array of {length} entries in a file of {len(self._content)} bytes")
        if type_id == STRING:
            return [self._string() for _ in range(length)]
        if type_id == ARRAY:
            return [self._array() for _ in range(length)]
        return self._scalars(type_id, length)

    def _scalars(self, type_id: int, length: int) -> list[Value]:
        scalar = SCALARS.get(type_id)
        if scalar is None:
            raise _Malformed(f"unknown value type {type_id} at byte {self._offset}")
        values = struct.unpack_from(f"<{length}{scalar.format[1:]}", self._content, self._offset)
        self._offset += scalar.size * length
        return list(values)

    def _integer(self, scalar: struct.Struct) -> int:
        (value,) = scalar.unpack_from(self._content, self._offset)
        self._offset += scalar.size
        return int(value)

    def _string(self) -> str:
        (length,) = UINT64.unpack_from(self._content, self._offset)
        start = self._offset + UINT64.size
        self._offset = start + length
        if self._offset > len(self._content):
            raise _Malformed(f"a string of {length} bytes at byte {start} runs past the end")
        return self._content[start : self._offset].decode()
