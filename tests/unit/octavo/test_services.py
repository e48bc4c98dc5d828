import socket
import sys
from pathlib import Path

import pytest

from octavo import redis_server
from octavo.data_folder import DataFolder
from octavo.errors import AddressInUse, ServiceFailed
from octavo.services import local_cluster
from octavo.settings import (
    ClusterSettings,
    Dtype,
    Kernels,
    PreemptionMode,
    SchedulingPolicy,
    StepKind,
    Weights,
    claim_port,
)

MODEL = Path("/models/m.gguf")


def settings(tmp_path, **changes):
    values = {
        "host": "127.0.0.1",
        "port": 8123,
        "data_dir": tmp_path,
        "model": str(MODEL),
        "served_model_name": None,
        "redis": None,
        "block_size": 16,
        "num_device_blocks": None,
        "num_host_blocks": None,
        "kv_memory": "1GiB",
        "max_num_batched_tokens": 512,
        "max_num_seqs": 64,
        "preemption_mode": PreemptionMode.AUTO,
        "max_model_len": None,
        "threads": None,
        "dtype": Dtype.FLOAT32,
        "kernels": Kernels.AUTO,
        "drain_timeout_s": 30.0,
    }
    return ClusterSettings(**(values | changes))


def cluster(tmp_path, **changes):
    services = local_cluster(settings(tmp_path, **changes), MODEL, DataFolder(tmp_path), "key")
    return {service.name: service for service in services}


def flags(service):
    words = service.command[3:]
    return dict(zip(words[::2], words[1::2], strict=True))


def test_the_scheduler_is_told_what_may_wait_and_who_may_call(tmp_path):
    changes = {"max_waiting": 5, "max_waiting_tokens": 600, "queue_timeout_s": 2.5, "api_keys": "redis://:secret@h/1"}
    scheduler = cluster(tmp_path, scheduling_policy=SchedulingPolicy.PRIORITY, **changes)["scheduler"]
    told = flags(scheduler)
    names = ("scheduling-policy", "max-waiting", "max-waiting-tokens", "queue-timeout")
    assert [told[f"--{name}"] for name in names] == ["priority", "5", "600", "2.5"]
    assert scheduler.environment["OCTAVO_API_KEYS"] == "redis://:secret@h/1"
    assert "secret" not in repr(scheduler)
    assert "--max-waiting" not in flags(cluster(tmp_path)["scheduler"])


def test_services_start_in_the_order_in_which_they_need_each_other(tmp_path):
    assert list(cluster(tmp_path)) == ["redis", "kvmanager", "gpuworker", "scheduler"]


def test_every_service_is_told_where_the_others_listen(tmp_path):
    services = cluster(tmp_path)
    assert flags(services["kvmanager"])["--redis"] == services["redis"].address
    assert flags(services["scheduler"])["--kvmanager"] == services["kvmanager"].address
    assert flags(services["scheduler"])["--worker"] == services["gpuworker"].address
    assert services["kvmanager"].address == f"unix:{tmp_path}/run/kvmanager.sock"
    assert services["scheduler"].command[:3] == (sys.executable, "-m", "scheduler")


def test_a_setting_that_was_not_made_is_left_to_the_service(tmp_path):
    services = cluster(tmp_path)
    assert "--num-device-blocks" not in flags(services["gpuworker"])
    assert "--max-model-len" not in flags(services["scheduler"])


def test_settings_reach_the_service_that_needs_them(tmp_path):
    sizes = {"num_device_blocks": 8, "block_size": 4, "max_num_seqs": 3, "threads": 2}
    services = cluster(tmp_path, **sizes, served_model_name="m", weights=Weights.Q8_0, step=StepKind.NATIVE)
    worker, scheduler = flags(services["gpuworker"]), flags(services["scheduler"])
    assert (worker["--num-device-blocks"], worker["--block-size"], worker["--threads"]) == ("8", "4", "2")
    assert (worker["--model"], worker["--dtype"], worker["--kernels"]) == (str(MODEL), "float32", "auto")
    assert (worker["--weights"], worker["--step"]) == ("q8_0", "native")
    assert (scheduler["--max-num-seqs"], scheduler["--served-model-name"], scheduler["--port"]) == ("3", "m", "8123")


def test_streams_may_finish_before_the_scheduler_is_killed(tmp_path):
    assert cluster(tmp_path, drain_timeout_s=50.0)["scheduler"].stop_grace_s > 50


def test_a_given_redis_is_used_and_not_started(tmp_path):
    redis = cluster(tmp_path, redis="redis://127.0.0.1:7000/1")["redis"]
    assert (redis.address, redis.command) == ("redis://127.0.0.1:7000/1", ())


@pytest.mark.parametrize(("host", "url"), [("0.0.0.0", "http://127.0.0.1:8123"), ("::1", "http://[::1]:8123")])
def test_the_apis_address_can_be_reached_whatever_it_listens_on(tmp_path, host, url):
    assert cluster(tmp_path, host=host)["scheduler"].address == url


def test_a_redis_on_the_path_comes_before_the_packaged_one(tmp_path, monkeypatch):
    packaged = redis_server.find_redis_server()
    program = tmp_path / "valkey-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_server.find_redis_server() == str(program) != packaged


def test_without_any_redis_the_ways_out_are_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(redis_server.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServiceFailed, match=r"octavo\[embedded\].*--redis"):
        redis_server.find_redis_server()


def test_redis_listens_on_its_socket_only_and_appends_to_a_file():
    words = redis_server.redis_command("valkey-server", Path("/run/r.sock"), Path("/data"))
    values = dict(zip(words[1::2], words[2::2], strict=True))
    assert (values["--port"], values["--unixsocket"]) == ("0", "/run/r.sock")
    assert (values["--dir"], values["--appendonly"]) == ("/data", "yes")


def test_a_port_in_use_is_refused_by_name():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse, match=rf"cannot listen on 127.0.0.1:{port}: Address already in use.*--port"):
            claim_port("127.0.0.1", port)


def test_port_zero_becomes_a_free_port():
    assert claim_port("127.0.0.1", 0) > 1023


def test_an_address_that_is_not_here_is_refused():
    with pytest.raises(AddressInUse, match="192\\.0\\.2\\.1:0"):
        claim_port("192.0.2.1", 0)


def test_in_one_process_a_cluster_is_redis_and_one_service_with_the_flags_of_all(tmp_path):
    services = cluster(tmp_path, in_process=True, max_waiting=5)
    assert list(services) == ["redis", "octavo"]
    own, apart = services["octavo"], cluster(tmp_path, max_waiting=5)
    assert own.address == apart["scheduler"].address
    assert own.environment == apart["scheduler"].environment
    assert own.command[1:4] == ("-m", "octavo.in_process", services["redis"].address)
    middle = own.command.index("--")
    worker_words, scheduler_words = own.command[4:middle], own.command[middle + 1 :]
    sockets = {word for word in (*apart["gpuworker"].command, *apart["scheduler"].command) if word.startswith("unix:")}
    for words, service in ((worker_words, "gpuworker"), (scheduler_words, "scheduler")):
        assert set(apart[service].command[3:]) - set(words) == sockets & set(apart[service].command)
