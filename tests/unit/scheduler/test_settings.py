from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.adapters.model_fingerprint import model_fingerprint
from scheduler.command import command
from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode
from scheduler.settings import LogLevel, Settings, default_model_name

REQUIRED = {"--kvmanager": "unix:/run/k.sock", "--worker": "localhost:9402", "--model": "/models/tiny.Q4.gguf"}


def start(flags=None, env=None, code=0) -> tuple[list[Settings], object]:
    seen = []
    words = [word for pair in {**REQUIRED, **(flags or {})}.items() for word in pair]

    def run(settings: Settings) -> int:
        seen.append(settings)
        return code

    return seen, CliRunner().invoke(command(run), words, env=env)


def test_defaults_are_those_that_help_shows():
    (settings,), result = start()
    assert result.exit_code == 0
    assert settings == Settings(
        host="127.0.0.1",
        port=8000,
        kvmanager="unix:/run/k.sock",
        worker="localhost:9402",
        model=Path("/models/tiny.Q4.gguf"),
        served_model_name="tiny.Q4",
        max_num_batched_tokens=512,
        max_num_seqs=64,
        preemption_mode=PreemptionMode.AUTO,
        overlap=True,
        max_model_len=None,
        scheduling_policy=SchedulingPolicy.FCFS,
        max_waiting=1024,
        max_waiting_tokens=None,
        queue_timeout=0.0,
        api_keys=None,
        max_body_bytes=8 * 1024 * 1024,
        drain_timeout=30.0,
        log_level=LogLevel.INFO,
    )


def test_a_variable_sets_a_flag_and_an_empty_one_does_not():
    env = {"OCTAVO_PORT": "9000", "OCTAVO_SERVED_MODEL_NAME": "tiny", "OCTAVO_MAX_MODEL_LEN": ""}
    (settings,), _ = start(env=env)
    assert (settings.port, settings.served_model_name, settings.max_model_len) == (9000, "tiny", None)
    (settings,), _ = start({"--port": "9001"}, env=env)
    assert settings.port == 9001


@pytest.mark.parametrize(
    ("flag", "value", "limit"),
    [
        ("--port", "65536", "65535"),
        ("--max-num-batched-tokens", "0", "1"),
        ("--max-num-seqs", "513", "--max-num-batched-tokens, which is 512"),
        ("--max-model-len", "0", "1"),
        ("--max-waiting", "0", "1"),
        ("--max-waiting-tokens", "0", "1"),
        ("--queue-timeout", "-0.5", "0"),
        ("--max-body-bytes", "5", "1024"),
        ("--drain-timeout", "-1.0", "0"),
        ("--kvmanager", "somewhere", "host:port"),
        ("--worker", "a:1,b:2", "one address is supported"),
        ("--served-model-name", " ", "blank"),
    ],
)
def test_a_bad_value_ends_the_start_by_flag_value_and_limit(flag, value, limit):
    seen, result = start({flag: value})
    assert (seen, result.exit_code) == ([], 2)
    message = result.stderr
    assert message.startswith(f"error: {flag} is ")
    assert value in message
    assert limit in message


def test_an_admin_key_is_taken_from_the_variable_and_never_shown():
    (settings,), _ = start(env={"OCTAVO_ADMIN_KEY": "k" * 16})
    assert settings.admin_key == "k" * 16
    assert "k" * 16 not in repr(settings)
    (settings,), _ = start(env={"OCTAVO_ADMIN_KEY": ""})
    assert settings.admin_key is None
    seen, result = start(env={"OCTAVO_ADMIN_KEY": "short"})
    assert (seen, result.exit_code) == ([], 2)
    assert result.stderr == "error: --admin-key has 5 characters, but must have 16 to 512\n"


def test_the_exit_code_is_what_serving_returns():
    _, result = start(code=3)
    assert result.exit_code == 3


def test_a_model_is_named_after_its_file_or_folder():
    assert default_model_name(Path("/m/SmolLM2-135M.Q4_1.gguf")) == "SmolLM2-135M.Q4_1"
    assert default_model_name(Path("/m/Qwen2.5-0.5B")) == "Qwen2.5-0.5B"


def test_the_fingerprint_changes_with_the_files_and_the_version(tmp_path):
    file = tmp_path / "a.gguf"
    file.write_bytes(b"1")
    first = model_fingerprint(file, "1.0")
    assert first.startswith("fp_")
    assert first == model_fingerprint(file, "1.0")
    assert first != model_fingerprint(file, "1.1")
    file.write_bytes(b"2")
    assert first != model_fingerprint(file, "1.0")
    assert model_fingerprint(tmp_path, "1.0") == model_fingerprint(tmp_path, "1.0")
