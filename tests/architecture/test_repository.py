"""What stands in two places says the same in both."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PROTOS = sorted((ROOT / "proto").rglob("*.proto"))
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("proto", PROTOS, ids=short)
def test_the_committed_stubs_are_what_the_proto_says(tmp_path, proto):
    """The header with the generator's version is left out: any patch release may write it."""
    name = proto.relative_to(ROOT / "proto")
    words = ["-I", "proto", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}", str(name)]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], cwd=ROOT, check=True)
    for fresh in sorted(tmp_path.rglob("*.py")):
        committed = ROOT / "services" / fresh.relative_to(tmp_path)
        assert committed.read_text() == fresh.read_text(), f"{short(committed)} is stale; run make proto"


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_every_link_in_the_docs_leads_somewhere(page):
    targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_the_make_targets_that_the_readme_names_exist():
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named
    assert named <= targets


def test_every_service_has_an_image_in_the_compose_file():
    compose = (ROOT / "docker-compose.yml").read_text()
    for service in ("scheduler", "kvmanager", "gpuworker"):
        assert (ROOT / "services" / service / "Dockerfile").exists()
        assert f"dockerfile: services/{service}/Dockerfile" in compose


def test_the_api_is_published_on_the_loopback_address_only():
    published = re.findall(r"ports: \[(.*)\]", (ROOT / "docker-compose.yml").read_text())
    assert published == ['"127.0.0.1:${OCTAVO_PORT:-8000}:8000"']


def test_ci_does_what_people_do():
    commands = [
        line for line in (ROOT / ".ci/run").read_text().splitlines() if line.strip() and not line.startswith("#")
    ]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "exec make ci"]


def test_the_torch_that_is_installed_first_is_the_one_that_is_pinned():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pinned = next(line for line in extras["gpuworker"] if line.startswith("torch"))
    assert f"pip install -qq {pinned})" in (ROOT / "Makefile").read_text()
