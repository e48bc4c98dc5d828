"""What nvcc made of the CUDA kernels, read from the library itself: resources, and the instructions that matter."""

import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "build" / "cuda" / "cuda" / "liboctavo_cuda.so"
ARCHITECTURES = {"sm_80", "sm_90"}

VECTOR_LOAD = r"\b(LDG\.E\S*\.128|LDGSTS\.E\S*\.128)"
VECTOR_STORE = r"\bSTG\.E\S*\.128"
TENSOR_CORES = r"\bHMMA\.\S+"
LOCAL_MEMORY = r"\b(LDL|STL)\b"


@dataclass(frozen=True)
class Promise:
    most_registers: int
    instructions: tuple[str, ...]


# By name; a kernel that is not here fails the test.
PROMISES = {
    "activate": Promise(64, (VECTOR_LOAD, VECTOR_STORE)),
    "attend_in_one_pass": Promise(255, (VECTOR_LOAD,)),
    "attend_to_partition": Promise(255, (VECTOR_LOAD,)),
    "copy_blocks": Promise(64, (VECTOR_LOAD, VECTOR_STORE)),
    "merge_partitions": Promise(64, ()),
    "norm": Promise(64, (VECTOR_LOAD, VECTOR_STORE)),
    "rotary": Promise(64, (VECTOR_LOAD, VECTOR_STORE)),
    "sample": Promise(64, (VECTOR_LOAD, VECTOR_STORE)),
    "write_kv": Promise(64, (VECTOR_LOAD, VECTOR_STORE)),
}


@dataclass(frozen=True)
class Kernel:
    architecture: str
    mangled: str

    @property
    def name(self) -> str:
        """The function's own name: the last of the nested ones before template arguments and parameters."""
        rest, name = self.mangled.removeprefix("_ZN"), ""
        while match := re.match(r"\d+", rest):
            length, start = int(match[0]), match.end()
            name, rest = rest[start : start + length], rest[start + length :]
        return name


def run(*words: str | Path) -> str:
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def tool(package: str, name: str) -> Path:
    path = next(Path(str(file.locate())) for file in metadata.files(package) or [] if file.name == name)
    path.chmod(path.stat().st_mode | 0o111)  # the wheel has it as a plain file
    return path


@pytest.fixture(scope="session")
def library() -> Path:
    """The fat binary of the sources as they are."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH: the CUDA kernels cannot be compiled on this machine")
    run("make", "cuda")
    return LIBRARY


@pytest.fixture(scope="session")
def cuobjdump() -> Path:
    return tool("nvidia-cuda-cuobjdump", "cuobjdump")


@pytest.fixture(scope="session")
def resources(library: Path, cuobjdump: Path) -> dict[Kernel, dict[str, int]]:
    """What each kernel uses, by the names that cuobjdump has for it."""
    used, architecture = {}, ""
    lines = iter(run(cuobjdump, "--dump-resource-usage", library).splitlines())
    for line in lines:
        if match := re.match(r"arch = (\w+)", line):
            architecture = match[1]
        elif match := re.match(r" Function (\w+):", line):
            counts = re.findall(r"(REG|STACK|LOCAL):(\d+)", next(lines))
            used[Kernel(architecture, match[1])] = {name: int(count) for name, count in counts}
    return used


@pytest.fixture(scope="session")
def instructions(library: Path, cuobjdump: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Kernel, str]:
    """The disassembly of each kernel."""
    folder = tmp_path_factory.mktemp("cubins")
    subprocess.run([cuobjdump, "--extract-elf", "all", library], cwd=folder, check=True, capture_output=True)
    disassembler, parts = tool("nvidia-cuda-nvdisasm", "nvdisasm"), defaultdict(list)
    for cubin in sorted(folder.iterdir()):
        kernel = None
        for line in run(disassembler, "--print-code", cubin).splitlines():
            if match := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
                kernel = Kernel(cubin.suffixes[-2].removeprefix("."), match[1])
            elif kernel is not None and "/*" in line:
                parts[kernel].append(line)
    return {kernel: "\n".join(lines) for kernel, lines in parts.items()}


def test_the_binary_has_machine_code_for_both_architectures_and_ptx_for_later_ones(library, cuobjdump):
    listed = run(cuobjdump, "--list-elf", "--list-ptx", library)
    assert set(re.findall(r"(sm_\d+)\.cubin", listed)) == ARCHITECTURES
    assert re.search(r"sm_90\.ptx", listed)


def test_every_kernel_is_there_for_every_architecture_and_has_promises(resources):
    assert {kernel.architecture for kernel in resources} == ARCHITECTURES
    for architecture in ARCHITECTURES:
        assert {kernel.name for kernel in resources if kernel.architecture == architecture} == set(PROMISES)


def test_no_kernel_has_a_stack_local_memory_or_more_registers_than_promised(resources):
    beyond = {
        kernel: used
        for kernel, used in resources.items()
        if used["STACK"] or used["LOCAL"] or used["REG"] > PROMISES[kernel.name].most_registers
    }
    assert not beyond


def test_no_kernel_spills(resources, instructions):
    assert set(instructions) == set(resources)
    assert not [kernel for kernel, code in instructions.items() if re.search(LOCAL_MEMORY, code)]


def test_every_kernel_has_the_instructions_that_it_promises(instructions):
    missing = [
        (kernel, pattern)
        for kernel, code in instructions.items()
        for pattern in PROMISES[kernel.name].instructions
        if not re.search(pattern, code)
    ]
    assert not missing


def test_attention_of_16_bit_elements_multiplies_on_tensor_cores(instructions):
    attention = {kernel: code for kernel, code in instructions.items() if kernel.name.startswith("attend_")}
    on_tensor_cores = {kernel for kernel, code in attention.items() if re.search(TENSOR_CORES, code)}
    assert on_tensor_cores == {
        kernel for kernel in attention if re.search(r"I(6__half|13__nv_bfloat16)", kernel.mangled)
    }
    assert on_tensor_cores


def test_the_checks_find_what_they_look_for():
    spilled = "        /*0010*/                   STL.64 [R1+0x8], R2 ;"
    assert re.search(LOCAL_MEMORY, spilled)
    assert re.search(VECTOR_LOAD, "LDGSTS.E.BYPASS.128 [R4], [R2.64] ;")
    assert not re.search(VECTOR_LOAD, "LDG.E.64 R2, [R2.64] ;")
    assert not re.search(TENSOR_CORES, "HFMA2.MMA R3, -RZ, RZ, 0, 0 ;")
    assert Kernel("sm_80", "_ZN6octavo4cuda12_GLOBAL__N_14normI6__halfLb1EEEv18octavo_norm_params").name == "norm"
