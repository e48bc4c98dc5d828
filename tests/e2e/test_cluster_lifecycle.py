"""`octavo up` from start to end: what a person sees, and what is left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

PROMPT = "The capital of France is"


def complete(cluster, prompt=PROMPT, max_tokens=8) -> str:
    body = {"model": cluster.model_id, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    answer = httpx.post(f"{cluster.base_url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def wait_gone(pids, timeout_s=10.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline_s, f"still running: {left}"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_started_cluster_completes_a_prompt_sensibly(cluster):
    assert "Paris" in complete(cluster)


def test_every_stage_is_shown_with_its_seconds(cluster):
    for stage in ("model", "redis", "kvmanager", "gpuworker", "scheduler"):
        assert re.search(rf"✓ {stage} +\d+\.\d s", cluster.output())
    assert "Octavo is ready after" in cluster.output()
    assert f"curl {cluster.base_url}/v1/completions" in cluster.output()


def test_the_status_shows_every_service_alive_and_ready(cluster):
    status = cluster.octavo("status")
    assert status.returncode == 0, status.stdout
    services = cluster.services()
    assert [service["name"] for service in services] == ["redis", "kvmanager", "gpuworker", "scheduler"]
    assert all(service["alive"] and service["ready"] and is_running(service["pid"]) for service in services)


def test_the_command_line_completes_a_prompt_on_the_running_cluster(cluster):
    shown = cluster.octavo("complete", PROMPT, "--max-tokens", "8")
    assert shown.returncode == 0, shown.stderr
    assert PROMPT + complete(cluster) in shown.stdout


def test_internal_endpoints_are_sockets_that_nobody_else_may_open(cluster):
    run = cluster.data_dir / "run"
    assert {path.name for path in run.iterdir()} == {"redis.sock", "kvmanager.sock", "gpuworker.sock"}
    assert run.stat().st_mode & 0o777 == 0o700


def test_a_second_cluster_on_the_same_folder_is_refused(cluster):
    second = cluster.octavo("up", "--port", "0")
    assert second.returncode == 1
    assert f"already runs on {cluster.data_dir} (process {cluster.process.pid})" in second.stderr


def test_a_port_in_use_is_refused_before_anything_starts(cluster, tmp_path):
    port = cluster.base_url.rpartition(":")[2]
    command = [sys.executable, "-m", "octavo", "up", "--data-dir", str(tmp_path), "--port", port]
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert second.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in second.stderr
    assert not list((tmp_path / "logs").iterdir())


@pytest.mark.parametrize("name", ["kvmanager", "gpuworker", "redis"])
def test_a_killed_service_comes_back_and_the_cluster_goes_on(cluster, name):
    before = complete(cluster)
    killed = cluster.kill(name)
    cluster.wait_restarted(name, killed)
    assert f"{name} (process {killed}) was ended by SIGKILL" in cluster.output()
    assert complete(cluster) == before


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "down"])
def test_the_end_is_clean_and_leaves_nothing_behind(start_cluster, end):
    cluster = start_cluster()
    pids = [service["pid"] for service in cluster.services()]
    if end == "down":
        assert cluster.octavo("down").returncode == 0
        assert cluster.process.wait(5) == 0
    else:
        assert cluster.end(signal.Signals[end]) == 0
    wait_gone(pids)
    assert not (cluster.data_dir / "run").exists()
    assert not (cluster.data_dir / "cluster.json").exists()
    assert cluster.octavo("status").returncode == 1


def test_a_running_stream_finishes_before_the_end(start_cluster):
    cluster = start_cluster()
    body = {"prompt": PROMPT, "max_tokens": 48, "temperature": 0, "stream": True}
    with httpx.stream("POST", f"{cluster.base_url}/v1/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if line.startswith("data:"))
        cluster.process.terminate()
        rest = [line for line in lines if line.startswith("data:")]
    assert rest[-1] == "data: [DONE]"
    assert any('"finish_reason":"' in line.replace(" ", "") for line in rest)
    assert cluster.process.wait(30) == 0


def test_nothing_outlives_a_killed_parent_and_the_folder_can_be_used_again(start_cluster, tmp_path):
    cluster = start_cluster()
    pids = [service["pid"] for service in cluster.services()]
    os.kill(cluster.process.pid, signal.SIGKILL)
    cluster.process.wait(10)
    wait_gone(pids)
    command = [sys.executable, "-m", "octavo", "up", "--data-dir", str(cluster.data_dir), "--port", "0"]
    words = ["--dtype", "float32", "--num-device-blocks", "64", "--threads", "2", "--example", PROMPT]
    again = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        shown = ""
        for line in again.stdout:
            shown += line
            if line.startswith("completed in"):
                break
        assert "Paris" in shown
    finally:
        again.terminate()
        assert again.wait(60) == 0
        again.stdout.close()


def test_a_model_that_cannot_be_read_fails_the_start_with_the_workers_own_words(tmp_path):
    model = tmp_path / "broken.gguf"
    model.write_bytes(b"this is no model")
    command = [sys.executable, "-m", "octavo", "up", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    failed = subprocess.run([*command, "--model", str(model)], capture_output=True, text=True, check=False, timeout=60)
    assert failed.returncode == 1
    assert "before it was ready" in failed.stderr
    assert "broken.gguf" in failed.stderr


def test_a_redis_that_runs_already_is_used(start_cluster, tmp_path):
    from octavo.redis_server import find_redis_server

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [find_redis_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", ""]
    redis = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        cluster = start_cluster(redis=f"redis://127.0.0.1:{port}/0")
        assert cluster.services()[0]["pid"] is None
        assert "Paris" in complete(cluster)
        assert cluster.end() == 0
        assert redis.poll() is None
    finally:
        redis.terminate()
        redis.wait()
