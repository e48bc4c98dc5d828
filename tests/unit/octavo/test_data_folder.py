import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from octavo.data_folder import ClusterState, DataFolder, RunningService, default_data_dir
from octavo.errors import AlreadyRunning, FolderUnusable, NotRunning

STATE = ClusterState(
    pid=7,
    base_url="http://127.0.0.1:8000",
    services=(RunningService(name="redis", pid=8, address="unix:///r.sock", log="/r.log", restarts=0),),
)


def test_a_second_cluster_on_the_same_folder_is_refused_with_the_first_ones_pid(tmp_path):
    with (
        DataFolder(tmp_path).locked(),
        pytest.raises(AlreadyRunning, match=rf"process {os.getpid()}.*octavo down.*--data-dir"),
        DataFolder(tmp_path).locked(),
    ):
        pytest.fail("two clusters hold one folder")


def test_the_folder_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with DataFolder(tmp_path).locked():
            assert DataFolder(tmp_path).is_held()
        assert not DataFolder(tmp_path).is_held()


def test_a_folder_that_cannot_be_made_or_filled_is_named(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "logs").touch()
    for folder, culprit in (("file", "file"), ("file/below", "file/below"), ("full", "full/logs")):
        with (
            pytest.raises(FolderUnusable, match=f"cannot be used: .*{culprit}: .*--data-dir"),
            DataFolder(tmp_path / folder).locked(),
        ):
            pytest.fail("an unusable folder was used")


def test_a_killed_holder_holds_nothing(tmp_path):
    script = "import sys, os, signal, pathlib; from octavo.data_folder import DataFolder\n"
    script += "with DataFolder(pathlib.Path(sys.argv[1])).locked(): os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / "cluster.lock").exists()
    with DataFolder(tmp_path).locked():
        assert (tmp_path / "cluster.lock").read_text() == f"{os.getpid()}\n"


def test_looking_at_the_folder_does_not_keep_a_cluster_from_starting(tmp_path):
    folder = DataFolder(tmp_path)
    with folder.locked():
        pass
    done = threading.Event()

    def look():
        while not done.is_set():
            folder.is_held()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(20):
            with DataFolder(tmp_path).locked():
                pass
    finally:
        done.set()
        looking.join()


def test_sockets_of_a_killed_cluster_are_removed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "old.sock").touch()
    with DataFolder(tmp_path).locked():
        assert list((tmp_path / "run").iterdir()) == []


def test_what_runs_is_read_back_as_it_was_written(tmp_path):
    folder = DataFolder(tmp_path)
    with folder.locked():
        folder.write_state(STATE)
        assert DataFolder(tmp_path).read_state() == STATE


@pytest.mark.parametrize("left_behind", [False, True])
def test_a_folder_without_a_cluster_says_so(tmp_path, left_behind):
    folder = DataFolder(tmp_path)
    if left_behind:  # by a cluster that was killed
        folder.write_state(STATE)
    with pytest.raises(NotRunning, match=f"No cluster runs on {tmp_path}"):
        folder.read_state()


def test_a_starting_cluster_has_no_services_yet(tmp_path):
    folder = DataFolder(tmp_path)
    with folder.locked(), pytest.raises(NotRunning):
        folder.read_state()


def test_socket_paths_fit_the_kernels_limit_however_deep_the_folder_lies(tmp_path):
    deep = DataFolder(tmp_path / ("d" * 100))
    assert len(os.fsencode(deep.run / "kvmanager.sock")) < 108
    assert deep.run != DataFolder(tmp_path / ("e" * 100)).run
    with deep.locked():
        assert deep.run.stat().st_mode & 0o777 == 0o700
    assert not deep.run.exists()


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [("/a", "/b", "/a"), (None, "/b", "/b/octavo"), (None, None, "/home/u/.local/share/octavo")],
)
def test_the_data_folder_follows_the_environment(monkeypatch, own, xdg, expected):
    monkeypatch.setenv("HOME", "/home/u")
    for name, value in (("OCTAVO_DATA_DIR", own), ("XDG_DATA_HOME", xdg)):
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
    assert default_data_dir() == Path(expected)
