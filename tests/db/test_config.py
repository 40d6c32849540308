"""Proves that a configuration is either used whole or refused in one line with file, key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.config import Config, ConfigError, load
from fenceline.limits import Limits

GOOD = """
[clusters.prod-eu]
"bootstrap.servers" = "kafka-1:9092,kafka-2:9092"
"security.protocol" = "SASL_SSL"
"sasl.password" = "env:PROD_PASSWORD"
"enable.ssl.certificate.verification" = true
"socket.timeout.ms" = 4000

[clusters.test]
"bootstrap.servers" = "localhost:9092"

[limits]
open_too_long_s = 10
"""


def read(tmp_path: Path, text: str | bytes, **env: str) -> Config:
    path = tmp_path / "fenceline.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path, env)


def test_a_good_file_is_read_whole(tmp_path: Path) -> None:
    config = read(tmp_path, GOOD, PROD_PASSWORD="hunter2")
    assert list(config.clusters) == ["prod-eu", "test"]
    prod = config.clusters["prod-eu"]
    assert prod.bootstrap == "kafka-1:9092,kafka-2:9092"
    assert prod.properties["sasl.password"] == "hunter2"
    assert prod.properties["enable.ssl.certificate.verification"] == "true"
    assert prod.properties["socket.timeout.ms"] == "4000"
    assert config.limits == Limits(open_too_long_s=10)


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    shown = read(tmp_path, GOOD, PROD_PASSWORD="hunter2").clusters["prod-eu"].shown()
    assert shown["sasl.password"] == "(hidden)"
    assert "hunter2" not in str(shown)


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter3\n")
    text = f'[clusters.a]\n"bootstrap.servers" = "h:1"\n"sasl.password" = "file:{tmp_path / "password"}"\n'
    assert read(tmp_path, text).clusters["a"].properties["sasl.password"] == "hunter3"


def test_without_a_file_nothing_is_watched() -> None:
    assert load(None, {}) == Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[clusters.a", "is not valid TOML"),
        (b"\xff\xfe", "is not UTF-8"),
        ('[cluster.a]\n"bootstrap.servers"="h:1"', "unknown key 'cluster'; did you mean 'clusters'?"),
        ("[wat]", "unknown key 'wat'; known are clusters, limits"),
        ("clusters = 3", "'clusters' must be a table"),
        ("[clusters]\na = 3", "'clusters.a' must be a table"),
        ("[clusters.a]", 'clusters.a lacks "bootstrap.servers"'),
        ('[clusters.a]\nbootstrap.servers = "h:1"', "quote dotted names"),
        ('[clusters.a]\n"bootstrap.servers" = ["h:1"]', "must be text or a number"),
        ('[clusters."a b"]\n"bootstrap.servers" = "h:1"', "is not a usable cluster name"),
        (
            '[clusters.a]\n"bootstrap.servers" = "env:NOWHERE"',
            "environment variable NOWHERE, which is not set",
        ),
        ('[clusters.a]\n"bootstrap.servers" = "file:/no/such"', "cannot read /no/such"),
        (
            "[limits]\nopen_to_long_s = 3",
            "unknown key 'limits.open_to_long_s'; did you mean 'open_too_long_s'?",
        ),
        ("[limits]\nopen_too_long_s = 0", "limits.open_too_long_s must be a number of seconds above 0"),
        ('[limits]\nopen_too_long_s = "1m"', "must be a number of seconds above 0, not '1m'"),
        ("[limits]\nopen_too_long_s = true", "must be a number of seconds above 0"),
        ("[limits]\nopen_too_long_s = nan", "must be a number of seconds above 0"),
        ("[limits]\nabort_percent = 0", "limits.abort_percent must be a number above 0"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert says in str(refused.value)
    assert str(tmp_path / "fenceline.toml") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read"):
        load(tmp_path / "nowhere.toml", {})
