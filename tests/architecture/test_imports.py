"""Imports run downwards only, and services meet only at the wire."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ROOT / "services"
CORES = sorted([*SERVICES.glob("*/core/**/*.py"), *SERVICES.glob("*/errors.py")])
COMPOSITION_ROOTS = {"main.py", "baseline.py"}  # the latter serves the paper's baselines, to be compared
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "misc", "base", "manager"}
SOURCES = sorted(
    path for tree in (SERVICES, ROOT / "tests") for path in tree.rglob("*.py") if "/v1/" not in path.as_posix()
)


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# The editable install's finder would find this checkout's modules, whatever folder is asked about.
LINT_IMPORTS = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
from importlinter.cli import lint_imports_command
lint_imports_command()
"""


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT_IMPORTS, "--no-cache"],
        cwd=root,
        env={"PYTHONPATH": str(root / "services"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_import_contracts_hold():
    checked = lint_imports(ROOT)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("scheduler/core/request.py", "import kvmanager.core"),
        ("scheduler/core/request.py", "import torch"),
        ("kvmanager/__init__.py", "import scheduler.core"),
        ("gpuworker/__init__.py", "import redis"),
        ("octavo/cli/simulate.py", "import scheduler.core"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, module, statement):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(SERVICES, tmp_path / "services", ignore=shutil.ignore_patterns("__pycache__", "lib"))
    planted = tmp_path / "services" / module
    planted.write_text(f"{planted.read_text()}\n{statement}\n")
    checked = lint_imports(tmp_path)
    assert checked.returncode != 0
    assert statement.removeprefix("import ") in checked.stdout


def absolute_imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{short(path)}: relative import"
            names.add(node.module or "")
    return names


def is_simulating(path: Path, name: str) -> bool:
    """The simulations run the cores of scheduler and kvmanager in one process (docs/adr/0012)."""
    simulates = any(path.is_relative_to(SERVICES / "octavo" / name) for name in ("simulation", "cluster_simulation"))
    return simulates and name.partition(".")[2].startswith("core")


def is_one_process(path: Path) -> bool:
    """The cluster in one process is wired from all three services (docs/adr/0013)."""
    return path.is_relative_to(SERVICES / "octavo/in_process")


def test_services_know_nothing_of_each_other_but_the_stubs():
    packages = {folder.name for folder in SERVICES.iterdir() if folder.is_dir()}
    foreign = set()
    for path in SERVICES.glob("*/**/*.py"):
        service = path.relative_to(SERVICES).parts[0]
        for name in absolute_imports(path):
            other, _, rest = name.partition(".")
            is_foreign = other in packages - {service} and rest.partition(".")[0] != "v1"
            if is_foreign and not is_simulating(path, name) and not is_one_process(path):
                foreign.add(f"{short(path)}: {name}")
    assert not foreign


@pytest.mark.parametrize("path", CORES, ids=short)
def test_a_core_imports_the_standard_library_itself_and_its_services_errors_only(path):
    service = path.relative_to(SERVICES).parts[0]
    foreign = {
        name
        for name in absolute_imports(path)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and name not in {f"{service}.errors", f"{service}.core"}
        and not name.startswith(f"{service}.core.")
    }
    assert not foreign


@pytest.mark.parametrize("path", CORES, ids=short)
def test_a_core_knows_no_io_clock_logging_or_randomness(path):
    impure = {
        "asyncio",
        "io",
        "logging",
        "os",
        "pathlib",
        "random",
        "secrets",
        "socket",
        "subprocess",
        "threading",
        "time",
    }
    assert not {name.partition(".")[0] for name in absolute_imports(path)} & impure


def test_there_are_cores_to_check():
    assert {path.parents[1].name for path in CORES} >= {"kvmanager", "scheduler", "gpuworker"}


def test_no_module_has_a_name_that_says_nothing():
    named = {path for path in SOURCES if {path.stem, path.parent.name} & FORBIDDEN_NAMES}
    assert not named


def test_only_composition_roots_and_the_servicers_of_a_service_know_its_adapters():
    wiring = set()
    for path in SERVICES.glob("*/**/*.py"):
        service = path.relative_to(SERVICES).parts[0]
        inside = path.parent.name == "adapters" or path.name in COMPOSITION_ROOTS or path.stem.endswith("servicer")
        if not inside and any(name.startswith(f"{service}.adapters") for name in absolute_imports(path)):
            wiring.add(short(path))
    assert not wiring
