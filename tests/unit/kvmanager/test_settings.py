"""Settings are checked once, and a wrong one is named with its value."""

import pytest
from typer.testing import CliRunner

from kvmanager.main import app
from kvmanager.pool import JournalPolicy
from kvmanager.settings import Settings, SettingsRefused

GOOD = {"listen": "unix:/k.sock", "redis": "unix:///r.sock"}


@pytest.mark.parametrize("redis", ["redis://localhost:6379/0", "rediss://host", "unix:///path.sock"])
def test_redis_is_a_url(redis):
    assert Settings(**GOOD | {"redis": redis}).redis == redis


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"watermark": 1.0}, "watermark: 1.0"),
        ({"watermark": -0.1}, "watermark: -0.1"),
        ({"redis": "localhost:6379"}, "redis: 'localhost:6379' must be a URL"),
        ({"listen": ""}, "listen"),
        ({"lease_s": 0.0}, "lease: 0.0 s"),
        ({"journal": JournalPolicy(patience_s=0)}, "journal patience: 0 s"),
        ({"journal": JournalPolicy(snapshot_interval=0)}, "snapshot interval: 0"),
        ({"instance": "a#b"}, "instance: 'a#b'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(changes, words):
    with pytest.raises(SettingsRefused, match=words):
        Settings(**GOOD | changes)


def test_the_command_names_the_setting_that_it_refuses():
    result = CliRunner().invoke(app, ["--listen", "unix:/k.sock", "--redis", "nowhere"])
    assert result.exit_code == 2
    assert "nowhere" in result.output


def test_an_unknown_log_level_is_refused_before_anything_starts():
    result = CliRunner().invoke(app, ["--listen", "unix:/k.sock", "--redis", "redis://host", "--log-level", "loud"])
    assert result.exit_code == 2
    assert "loud" in result.output
