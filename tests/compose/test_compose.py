"""The containers do what the processes do. The tests use one project, in order: it is started once."""

import time

import httpx
import pytest

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

SERVICES = ("redis", "kvmanager", "gpuworker", "scheduler")


def complete(compose, timeout_s=60.0) -> str:
    body = {"model": "default", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    answer = httpx.post(f"{compose.base_url}/v1/completions", json=body, timeout=timeout_s)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def wait_complete(compose, timeout_s=60.0) -> str:
    """The first answer after a disturbance."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return complete(compose)
        except (AssertionError, httpx.HTTPError):
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.5)


def test_a_request_is_completed_sensibly(compose):
    assert "Paris" in complete(compose)


def test_every_container_is_healthy(compose):
    for service in SERVICES:
        assert [container.health for container in compose.containers(service)] == ["healthy"]


def test_services_run_as_somebody_without_rights(compose):
    for service in ("kvmanager", "gpuworker", "scheduler"):
        container = compose.containers(service)[0]
        assert container.exec_run(["id", "-u"]).output.strip() == b"10001"


def test_only_the_gpuworkers_image_holds_torch_and_kernels(compose):
    for service, held in (("scheduler", False), ("kvmanager", False), ("gpuworker", True)):
        container = compose.containers(service)[0]
        assert (container.exec_run(["python", "-c", "import torch"]).exit_code == 0) is held
        find = "import pathlib, gpuworker; print(*pathlib.Path(gpuworker.__path__[0]).rglob('*.so'))"
        assert bool(container.exec_run(["python", "-c", find]).output.strip()) is held


def test_the_api_is_published_on_the_loopback_address_and_nothing_else_is(compose):
    published = {service: compose.containers(service)[0].ports for service in SERVICES}
    assert published["scheduler"]["8000/tcp"][0]["HostIp"] == "127.0.0.1"
    others = [port for service in SERVICES[:3] for port in published[service].values() if port]
    assert others == []


def test_the_model_cannot_be_changed_from_inside(compose):
    for service in ("gpuworker", "scheduler"):
        mounts = [
            mount for mount in compose.containers(service)[0].attrs["Mounts"] if mount["Destination"] == "/models"
        ]
        assert [mount["RW"] for mount in mounts] == [False]


def test_packed_weights_are_kept_in_a_volume_for_the_next_start(compose):
    worker = compose.containers("gpuworker")[0]
    places = [mount for mount in worker.attrs["Mounts"] if mount["Destination"] == "/var/cache/octavo"]
    assert [mount["Type"] for mount in places] == ["volume"]
    assert worker.exec_run(["ls", "/var/cache/octavo/packed"]).output.strip()


def test_a_killed_kvmanager_comes_back_and_requests_work_again(compose):
    before = compose.containers("kvmanager")[0]
    started = before.attrs["State"]["StartedAt"]
    before.exec_run(["python", "-c", "import os, signal; os.kill(-1, signal.SIGKILL)"])
    deadline_s = time.monotonic() + 60
    while compose.engine.containers.get(before.id).attrs["State"]["StartedAt"] == started:
        assert time.monotonic() < deadline_s, "the container was not started again"
        time.sleep(0.2)
    compose.wait_healthy("kvmanager")
    assert "Paris" in wait_complete(compose)


def test_a_restarted_redis_keeps_the_journal(compose):
    redis = compose.containers("redis")[0]
    before = redis.exec_run(["redis-cli", "dbsize"]).output
    assert before.strip() != b"0"
    compose.run("restart", "redis")
    compose.wait_healthy("redis")
    assert redis.exec_run(["redis-cli", "dbsize"]).output == before
    assert "Paris" in wait_complete(compose)


def test_a_second_gpuworker_becomes_healthy_and_requests_still_work(compose):
    compose.up("--scale", "gpuworker=2", "--no-recreate")
    assert [container.health for container in compose.containers("gpuworker")] == ["healthy", "healthy"]
    assert "Paris" in wait_complete(compose)


def test_taking_it_down_leaves_nothing(compose):
    assert compose.remains()
    compose.down()
    assert compose.remains() == []
