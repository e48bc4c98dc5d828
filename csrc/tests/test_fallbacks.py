"""The installed kernels on processors that lack this machine's instructions, emulated by qemu-user.

An instruction that the processor lacks ends the program, wherever it came from.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "build" / "emulated" / "tests" / "fallback_test"
QEMU = "qemu-x86_64"

PROCESSORS = {"Haswell": "avx2", "Nehalem": "portable", "qemu64": "portable"}


@pytest.fixture(autouse=True)
def qemu() -> None:
    if shutil.which(QEMU) is None:
        assert os.environ.get("CI") != "true", f"{QEMU} is missing, and CI needs it: apt-get install qemu-user"
        pytest.skip(f"{QEMU} is missing; on Debian or Ubuntu: apt-get install qemu-user")


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_lesser_processor_gets_kernels_that_it_can_run_and_the_right_results(processor: str) -> None:
    command = [QEMU, "-cpu", processor, str(PROGRAM)]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "2"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == PROCESSORS[processor]


def test_instructions_that_a_processor_lacks_would_be_found(tmp_path: Path) -> None:
    source, program = tmp_path / "wide.cpp", tmp_path / "wide"
    source.write_text('int main() { asm volatile("vpaddd %ymm0, %ymm1, %ymm2"); }')
    subprocess.run([os.environ.get("CXX", "g++"), str(source), "-o", str(program)], check=True)
    assert subprocess.run([QEMU, "-cpu", "Haswell", str(program)], check=False).returncode == 0
    assert subprocess.run([QEMU, "-cpu", "Nehalem", str(program)], check=False, capture_output=True).returncode != 0
