"""What this machine offers: cores, memory, instructions."""

import os
from collections.abc import Iterable
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_NVIDIA_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))  # Linux, and Linux under Windows


def num_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def available_memory_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Memory that can still be taken: the machine's, or the container's where that has less."""
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    try:
        limit, used = (cgroup / "memory.max").read_text().strip(), (cgroup / "memory.current").read_text().strip()
    except OSError:
        return available
    return available if limit == "max" else min(available, max(int(limit) - int(used), 0))


def has_nvidia_driver(drivers: Iterable[Path] = _NVIDIA_DRIVERS) -> bool:
    """Whether there may be a CUDA device; torch, which knows, takes seconds to import."""
    return any(path.exists() for path in drivers)


def has_fast_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU multiplies bfloat16 itself; else such products are slower than float32."""
    flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags
