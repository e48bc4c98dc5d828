"""The C interface of ``csrc/include/octavo.h``, loaded with ctypes: the same structs, the same names."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources, util
from pathlib import Path
from typing import Any

from gpuworker.errors import KernelError, KernelInputError, KernelsUnavailable
from gpuworker.row_structs import ActivationParams, NormParams, RotaryParams, SampleParams

ABI_VERSION = 2

OUT_OF_MEMORY = 2
DEVICE_ERROR = 3


@dataclass(frozen=True, slots=True)
class LibraryKind:
    """The kernels of one device."""

    device: str
    file_name: str
    how_to_build: str


CPU = LibraryKind(
    "cpu", "liboctavo_cpu.so", "build it with `make kernels`, or install octavo without OCTAVO_NO_KERNELS"
)

CUDA = LibraryKind("cuda", "liboctavo_cuda.so", "build and install it with `make cuda`, which needs nvcc")


class CacheStruct(ctypes.Structure):
    """``octavo_cache``."""

    _fields_ = (
        ("pool", ctypes.c_void_p),
        ("num_blocks", ctypes.c_int64),
        ("num_layers", ctypes.c_int32),
        ("num_kv_heads", ctypes.c_int32),
        ("block_size", ctypes.c_int32),
        ("head_size", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class WriteKVParams(ctypes.Structure):
    """``octavo_write_kv_params``."""

    _fields_ = (
        ("cache", CacheStruct),
        ("key", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("slot_mapping", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("key_stride", ctypes.c_int64),
        ("value_stride", ctypes.c_int64),
        ("layer", ctypes.c_int32),
    )


class PagedAttentionParams(ctypes.Structure):
    """``octavo_paged_attention_params``."""

    _fields_ = (
        ("cache", CacheStruct),
        ("query", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("query_starts", ctypes.c_void_p),
        ("context_lens", ctypes.c_void_p),
        ("block_tables", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("query_stride", ctypes.c_int64),
        ("num_seqs", ctypes.c_int32),
        ("max_blocks", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("layer", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )


class CopyBlocksParams(ctypes.Structure):
    """``octavo_copy_blocks_params``."""

    _fields_ = (("cache", CacheStruct), ("pairs", ctypes.c_void_p), ("num_pairs", ctypes.c_int64))


class SwapBlocksParams(ctypes.Structure):
    """``octavo_swap_blocks_params``."""

    _fields_ = (
        ("source", CacheStruct),
        ("destination", CacheStruct),
        ("pairs", ctypes.c_void_p),
        ("num_pairs", ctypes.c_int64),
    )


class LoadedLibrary:
    """One loaded library; statuses become exceptions."""

    def __init__(self, kind: LibraryKind, path: Path | None = None) -> None:
        """Loads the installed library, or the one at ``path``. Raises ``KernelsUnavailable``."""
        self._library = _open(kind, path or installed_library(kind))
        self._last_error = self.declare("octavo_last_error", (), ctypes.c_char_p)

    def check(self, status: int) -> None:
        """Turns what a kernel returned into an exception, unless it is OK."""
        if status == 0:
            return
        message = bytes(self._last_error()).decode()
        if status == OUT_OF_MEMORY:
            raise MemoryError(message)
        raise KernelError(message) if status == DEVICE_ERROR else KernelInputError(message)

    def declare(
        self, name: str, argtypes: tuple[type, ...], restype: type | None = ctypes.c_int32
    ) -> Callable[..., Any]:
        """The function ``name`` of the library, which takes and returns these types."""
        function = self._library[name]
        function.argtypes = argtypes
        function.restype = restype
        return function


class KernelLibrary(LoadedLibrary):
    """The kernels for CPUs."""

    def __init__(self, path: Path | None = None) -> None:
        """Loads the installed library, or the one at ``path``. Raises ``KernelsUnavailable``."""
        super().__init__(CPU, path)
        self._isa = self.declare("octavo_cpu_isa", (), ctypes.c_char_p)
        self._select_isa = self.declare("octavo_cpu_select_isa", (ctypes.c_char_p,))
        self.write_kv = self.declare("octavo_cpu_write_kv", (WriteKVParams,))
        self.paged_attention = self.declare("octavo_cpu_paged_attention", (PagedAttentionParams,))
        self.copy_blocks = self.declare("octavo_cpu_copy_blocks", (CopyBlocksParams,))
        self.swap_blocks = self.declare("octavo_cpu_swap_blocks", (SwapBlocksParams,))
        self.rotary = self.declare("octavo_cpu_rotary", (RotaryParams,))
        self.rms_norm = self.declare("octavo_cpu_rms_norm", (NormParams,))
        self.layer_norm = self.declare("octavo_cpu_layer_norm", (NormParams,))
        self.silu_mul = self.declare("octavo_cpu_silu_mul", (ActivationParams,))
        self.gelu = self.declare("octavo_cpu_gelu", (ActivationParams,))
        self.gelu_tanh = self.declare("octavo_cpu_gelu_tanh", (ActivationParams,))
        self.sample = self.declare("octavo_cpu_sample", (SampleParams,))

    @property
    def isa(self) -> str:
        """Instruction set in use."""
        return bytes(self._isa()).decode()

    def select_isa(self, name: str) -> None:
        """Uses another instruction set from the next call on, for every user of the library in this process."""
        self.check(self._select_isa(name.encode()))


def installed_library(kind: LibraryKind = CPU) -> Path:
    """Where the library lies, be octavo installed from a wheel or editable."""
    return Path(str(resources.files("gpuworker") / "lib" / kind.file_name))


def _open(kind: LibraryKind, path: Path) -> ctypes.CDLL:
    kernels, remedy = f"the {kind.device} kernels", kind.how_to_build
    if not path.is_file():
        raise KernelsUnavailable(f"{kernels} are not at {path}: {remedy}")
    try:
        _load_openmp_of_torch()
        library = ctypes.CDLL(str(path))
        version = int(library.octavo_abi_version())
    except (OSError, AttributeError) as error:
        raise KernelsUnavailable(f"{kernels} at {path} cannot be loaded ({error}): {remedy}") from error
    if version != ABI_VERSION:
        raise KernelsUnavailable(
            f"{kernels} at {path} have ABI version {version}, this package needs {ABI_VERSION}: {remedy}"
        )
    return library


def _load_openmp_of_torch() -> None:
    """Loads the libgomp that torch brings, without torch, which takes seconds.

    The dynamic linker then hands the same one to the kernels and, where it is imported, to torch; so both share one
    pool of OpenMP threads and ``torch.set_num_threads`` counts for both.
    """
    torch = util.find_spec("torch")
    for folder in (torch.submodule_search_locations or ()) if torch else ():
        openmp = Path(folder) / "lib" / "libgomp.so.1"
        if openmp.is_file():
            ctypes.CDLL(str(openmp))
