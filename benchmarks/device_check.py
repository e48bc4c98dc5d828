"""Builds, tests and times the CUDA kernels on the device of this machine, within a few minutes: `make device-check`.

Prints a table and writes the page and its figures as JSON. Exit status 1 where there is no device, at once, or where a
stage failed. Any Python does that has torch for CUDA, numpy, pytest and hypothesis.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "services"), str(ROOT / "benchmarks")]

from device_report import Budget, Report, Stage, figures_table, page, to_json  # noqa: E402

PAGE, JSON = ROOT / "docs" / "device-figures.md", ROOT / "benchmarks" / "data" / "device-figures.json"
DEFAULT_BUDGET_S = 420.0
TIMING_S = 120.0  # kept for the timings
LIBRARIES = ROOT / "services" / "gpuworker" / "lib"


class StageFailed(Exception):
    """A stage that did not pass, with what to do or to read."""


def missing_device() -> str:
    """Why nothing can be checked here; nothing where it can."""
    try:
        from gpuworker.kernels.cuda_device import what_is_missing  # noqa: PLC0415 (imports torch)
    except ImportError as error:
        return f"torch cannot be imported ({error})"
    return what_is_missing()


def build(budget: Budget) -> str:
    """Both libraries, installed beside the package. Without nvcc those that lie there already are used."""
    nvcc = shutil.which(os.environ.get("NVCC", "nvcc"))
    if nvcc is None:
        if (LIBRARIES / "liboctavo_cuda.so").is_file():
            return "no nvcc: the installed library is used"
        raise StageFailed("nvcc is missing: install the CUDA toolkit, 13.0 or later, or name it with NVCC")
    tools = os.pathsep.join([str(ROOT / ".venv" / "bin"), os.environ["PATH"]])
    cmake = shutil.which("cmake", path=tools)
    if cmake is None:
        raise StageFailed("cmake is missing: `pip install cmake ninja`")
    folder = ROOT / "build" / "device"
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DOCTAVO_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={nvcc}"]
    _run(budget, [cmake, "-S", str(ROOT / "csrc"), "-B", str(folder), *options])
    targets = ["--target", "octavo_cuda", "octavo_cpu"]
    _run(budget, [cmake, "--build", str(folder), "--parallel", str(os.cpu_count() or 1), *targets])
    _run(budget, [cmake, "--install", str(folder), "--prefix", str(LIBRARIES)])
    return "built and installed"


def contract_suite(budget: Budget) -> str:
    """What every implementation promises, on the device."""
    where = [
        "-c",
        os.devnull,
        "--rootdir",
        str(ROOT),
        "--noconftest",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
    ]
    suite = [str(ROOT / "tests" / "contract" / "kernel_ops"), "-k", "cuda and not emulated"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("services", "tests"))}
    output = _run(budget, [sys.executable, "-m", "pytest", "-q", "--tb=short", *where, *suite], environment)
    return output.strip().splitlines()[-1]


def equality(model: Path | None) -> str:
    """Tokens of whole steps beside the reference's."""
    from device_equality import RandomWeights, compare  # noqa: PLC0415 (imports torch)

    from gpuworker.kernels.cuda import CudaOps  # noqa: PLC0415
    from gpuworker.weights.source import WeightSource  # noqa: PLC0415

    source: WeightSource = RandomWeights()
    if model is not None:
        from gpuworker.weights.loading import open_weights  # noqa: PLC0415 (needs packages that random weights do not)

        source = open_weights(model)
    result = compare(CudaOps(), source)
    if not result.holds:
        raise StageFailed(f"{source.name}: {result}")
    return f"{source.name}: {result}"


def default_model() -> Path | None:
    """The default model's file if it was fetched."""
    try:
        from octavo import catalog  # noqa: PLC0415 (may lack its dependencies in another Python)
    except ImportError:
        return None
    return catalog.cached_path(catalog.CATALOG[catalog.DEFAULT_MODEL])


def timed(report: Report, budget: Budget) -> Report:
    """The report with rates of copies and all figures for which there is time."""
    from device_timing import copy_rate, figures, host_rate  # noqa: PLC0415 (imports torch)

    from gpuworker.kernels.cuda import CudaOps  # noqa: PLC0415

    ops = CudaOps()
    copies = replace(report, copy_bytes_per_s=copy_rate(ops), host_bytes_per_s=host_rate(ops))
    return replace(copies, figures=list(figures(ops, budget)))


def run_stage(name: str, work: Callable[[], str]) -> Stage:
    """The stage with how it ended; a failure is printed and does not stop the others."""
    started = time.monotonic()
    print(f"  … {name}", flush=True)
    try:
        outcome, passed = work(), True
    except Exception as error:  # noqa: BLE001 (a device may fail in any way, and the rest is still worth knowing)
        outcome, passed = f"failed: {error}", False
    print(f"  {'✓' if passed else '✗'} {name}: {outcome}", flush=True)
    return Stage(name, outcome.splitlines()[0], time.monotonic() - started, passed)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget-s", type=float, default=DEFAULT_BUDGET_S, help="seconds for everything")
    parser.add_argument("--model", type=Path, default=None, help="model to compare with [default: the default model]")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--json", type=Path, default=JSON)
    arguments = parser.parse_args()
    missing = missing_device()
    if missing:
        print(f"make device-check needs a CUDA device: {missing}", file=sys.stderr)
        return 1
    return check(Budget(arguments.budget_s), arguments.model or default_model(), arguments.page, arguments.json)


def check(budget: Budget, model: Path | None, page_path: Path, json_path: Path) -> int:
    """All stages; writes what was found whatever failed, but for the build, without which there is nothing."""
    reports: list[Report] = []

    def timings() -> str:
        reports.append(timed(_describe(), budget))
        return f"{len(reports[-1].figures)} figures"

    stages = [run_stage("build", lambda: build(budget))]
    if not stages[0].passed:
        return 1
    stages += [
        run_stage("contract suite", lambda: contract_suite(Budget(budget.left_s - TIMING_S))),
        run_stage("steps beside the reference", lambda: equality(model)),
        run_stage("timings", timings),
    ]
    report = replace(reports[-1] if reports else _describe(), stages=stages)
    print(figures_table(report))
    page_path.write_text(page(report))
    json_path.write_text(to_json(report))
    return 0 if report.passed else 1


def _describe() -> Report:
    import torch  # noqa: PLC0415 (takes seconds)

    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return Report(
        torch.cuda.get_device_name(),
        f"torch {torch.__version__}, CUDA {torch.version.cuda}",
        datetime.now(UTC).date().isoformat(),
        revision.stdout.strip() or "unknown",
    )


def _run(budget: Budget, words: list[str], environment: dict[str, str] | None = None) -> str:
    """The output of a command that may take what is left of the budget."""
    try:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=max(1.0, budget.left_s),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StageFailed(f"{Path(words[0]).name} took longer than the {error.timeout:.0f} s that were left") from error
    if done.returncode:
        print((done.stdout + done.stderr)[-8000:], file=sys.stderr)
        raise StageFailed(f"{Path(words[0]).name} ended with status {done.returncode}; its output is above")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
