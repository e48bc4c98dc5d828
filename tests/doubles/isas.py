"""The instruction sets of the CPU kernels that this machine runs."""

from contextlib import suppress

from gpuworker.errors import KernelInputError
from gpuworker.library import KernelLibrary


def runnable_isas() -> list[str]:
    """From the plainest on; the best one stays selected."""
    library, names = KernelLibrary(), []
    for isa in ("portable", "avx2", "avx512"):
        with suppress(KernelInputError):
            library.select_isa(isa)
            names.append(isa)
    library.select_isa("auto")
    return names
