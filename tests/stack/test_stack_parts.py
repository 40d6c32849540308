"""Proves which parts `make up` has with and without the demo, and what it writes into fenceline.toml."""

import time
import tomllib
from pathlib import Path

import pytest

from sandbox.options import read_options
from sandbox.stack import main
from sandbox.up import SPARK_STARTS_WITHIN_S, Stack

_DEMO = {"receiver", "demo", "spark"}


def stack(folder: Path, **variables: str) -> Stack:
    """Return a stack that is not started."""
    return Stack(read_options({"FENCELINE_DATA": str(folder), "PORT": "8133", **variables}))


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
