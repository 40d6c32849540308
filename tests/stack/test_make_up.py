"""What `make up` takes and has: every bad value is refused with its name and the remedy, and stops the start
in one line; which parts there are with and without the demo, and what is written into fenceline.toml.

Bad clusters of a configuration stop nothing: tests/stack/room/test_one_bad_cluster.py.
"""

import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from sandbox import SandboxError, options
from sandbox.stack import main
from sandbox.up import SPARK_STARTS_WITHIN_S, Stack
from tests.cases import cases

_DEMO = {"receiver", "demo", "spark"}


def test_the_sandbox_runs_by_default() -> None:
    read = options.read_options({})
    assert (read.port, read.has_own_kafka, read.demo) == (8000, True, options.DemoSize.FULL)
    assert read.data == options.ROOT / ".data"
    assert (read.brokers, read.shards, read.redis_port) == (1, 1, 0)


def test_the_demo_runs_in_the_sandbox_alone() -> None:
    asked: tuple[dict[str, str], ...] = ({}, {"DEMO": "lite"}, {"DEMO": "0"}, {"BOOTSTRAP": "kafka:9092"})
    read = [options.read_options(each) for each in asked]
    assert [each.has_demo for each in read] == [True, True, False, False]
    assert [each.has_full_demo for each in read] == [True, False, False, False]


def test_three_brokers_and_several_shards_are_optional() -> None:
    read = options.read_options({"BROKERS": "3", "SHARDS": "4"})
    assert (read.brokers, read.shards) == (3, 4)


def test_a_real_kafka_is_accepted(tmp_path: Path) -> None:
    assert not options.read_options({"BOOTSTRAP": "kafka-1:9092,kafka-2:9092"}).has_own_kafka
    assert not options.read_options({"BOOTSTRAP": "[::1]:9092"}).has_own_kafka
    config = tmp_path / "fenceline.toml"
    config.write_text("")
    assert options.read_options({"CONFIG": str(config)}).config == str(config)


@cases(
    ({"PORT": "http"}, "PORT=http: give a number from 1 to 65535"),
    ({"PORT": "70000"}, "PORT=70000: give a number from 1 to 65535"),
    ({"SHARDS": "0"}, "SHARDS=0: give a number from 1 to 50"),
    ({"REDIS_PORT": "0"}, "REDIS_PORT=0: give a number from 1 to 65535"),
    (
        {"REDIS_PORT": "6379", "REDIS_URL": "redis://h"},
        "REDIS_PORT is for the embedded Redis: leave it out with REDIS_URL",
    ),
    ({"SMALL": "yes"}, "SMALL=yes: give 1, or leave it out"),
    ({"SMALL": "1", "SHARDS": "2"}, "SMALL=1 has one worker for all, and SHARDS asks for more: give one"),
    ({"DEMO": "no"}, "DEMO=no: give 1, quiet, lite or 0"),
    ({"BROKERS": "2"}, "BROKERS=2: give 1 or 3"),
    ({"BROKERS": "3", "BOOTSTRAP": "a:1"}, "BROKERS is for the sandbox's own Kafka: leave it out"),
    ({"BOOTSTRAP": "kafka"}, "BOOTSTRAP=kafka: give host:port, several with commas between"),
    ({"BOOTSTRAP": "a:1,,b:2"}, "BOOTSTRAP=a:1,,b:2: give host:port"),
    ({"CONFIG": "/no/such.toml"}, "CONFIG=/no/such.toml: no such file"),
    ({"CONFIG": __file__, "BOOTSTRAP": "a:1"}, "BOOTSTRAP and CONFIG both name clusters: give one"),
)
def test_a_bad_value_is_refused(environment: dict[str, str], line: str) -> None:
    with pytest.raises(SandboxError) as refused:
        options.read_options(environment)
    assert line in str(refused.value)


@cases(
    ({"PORT": "eighty"}, "give a number"),
    ({"DATABASE_URL": "mysteryql://x/y"}, "DATABASE_URL"),
)
def test_a_bad_variable_stops_the_start_in_one_line(
    tmp_path: Path, variables: dict[str, str], says: str
) -> None:
    assert says in refused_start(tmp_path, **variables)


def test_bad_toml_stops_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('[clusters.a]\n"bootstrap.servers" = "h:1"\n[limit]\n')
    said = refused_start(tmp_path, CONFIG=str(tmp_path / "bad.toml"))
    assert "bad.toml: unknown key 'limit'; did you mean 'limits'?" in said


def test_a_taken_port_stops_the_start_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert port in refused_start(tmp_path, PORT=port)


def refused_start(tmp_path: Path, **variables: str) -> str:
    """Start a stack that must refuse, and return what it printed, free of tracebacks."""
    command = [sys.executable, "-m", "sandbox.up"]
    environment = {"PATH": "/usr/bin:/bin", "FENCELINE_DATA": str(tmp_path / "data"), "DEMO": "0"} | variables
    done = subprocess.run(
        command, cwd=options.ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    return said


def stack(folder: Path, **variables: str) -> Stack:
    """Return a stack that is not started."""
    return Stack(options.read_options({"FENCELINE_DATA": str(folder), "PORT": "8133", **variables}))


def receiver_page(made: Stack) -> str:
    """Return the address that web and prepare are given of the receiver's page."""
    found = {part.name: part.environment.get("FENCELINE_DEMO_RECEIVER") for part in made.list_parts()}
    assert found["web"] == found["prepare"]
    return str(found["web"])


def test_the_demo_s_receiver_is_the_only_private_address_that_is_sent_to(tmp_path: Path) -> None:
    made = stack(tmp_path)
    alerts = tomllib.loads((tmp_path / "fenceline.toml").read_text())["alerts"]
    address = receiver_page(made).split("/")[2]
    assert alerts == {"external_url": "http://127.0.0.1:8133", "allow_private": [address]}
    assert {part.name for part in made.list_parts()} >= _DEMO


@pytest.mark.parametrize("variables", [{"DEMO": "0"}, {"BOOTSTRAP": "kafka.example:9092"}])
def test_without_the_demo_there_is_no_receiver_and_no_private_address(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    made = stack(tmp_path, **variables)
    alerts = tomllib.loads((tmp_path / "fenceline.toml").read_text())["alerts"]
    assert alerts == {"external_url": "http://127.0.0.1:8133"}
    assert receiver_page(made) == ""
    assert not {part.name for part in made.list_parts()} & _DEMO


def test_its_secret_is_for_the_receiver_and_for_what_adds_the_channel_alone(tmp_path: Path) -> None:
    parts = stack(tmp_path).list_parts()
    secret = (tmp_path / "secrets" / "receiver_secret").read_text().strip()
    assert secret.startswith("whsec_")
    assert [part.name for part in parts if secret in part.environment.values()] == ["prepare"]
    (receiver,) = (part for part in parts if part.name == "receiver")
    assert set(receiver.environment) == {"PYTHONPATH", "PYTHONUNBUFFERED"}
    assert isinstance(receiver.command, list)
    assert not [word for word in receiver.command if secret in word]


def test_a_port_is_the_receiver_s_again_at_the_next_start(tmp_path: Path) -> None:
    pages = {receiver_page(stack(tmp_path)) for _ in range(2)}
    assert len(pages) == 1


@pytest.mark.parametrize(("size", "jobs"), [("1", {"audit", "history"}), ("lite", set())])
def test_only_the_full_demo_has_jobs_and_names_where_they_write(
    tmp_path: Path, size: str, jobs: set[str]
) -> None:
    stack(tmp_path, DEMO=size)
    written = tomllib.loads((tmp_path / "fenceline.toml").read_text())
    assert {"audit", "history"} & written.keys() == jobs
    assert {written[job]["url"] for job in jobs} <= {str(tmp_path / "spark" / "outputs")}


def test_make_url_prints_the_address_and_the_sign_in_while_the_stack_is_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stack(tmp_path)
    monkeypatch.setenv("FENCELINE_DATA", str(tmp_path))
    assert main() == 1
    assert f"no stack is up on {tmp_path}" in capsys.readouterr().err
    made.is_up = True
    made.write_stack({})
    assert main() == 0
    printed = capsys.readouterr().out
    assert made.url in printed
    assert made.password in printed


def test_pages_expect_the_demo_s_query_for_minutes_after_the_start(tmp_path: Path) -> None:
    (web,) = (part for part in stack(tmp_path).list_parts() if part.name == "web")
    until_ms = int(web.environment["FENCELINE_DEMO_SPARK_UNTIL_MS"])
    # Rounded to a millisecond.
    assert 0 < until_ms / 1000 - time.time() <= SPARK_STARTS_WITHIN_S + 0.001
