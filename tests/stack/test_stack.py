"""`make up` with three brokers and two shards: each part runs, a scene is shown, and a client
that guesses passwords cannot forge its address."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from sandbox.kafka import live_brokers
from sandbox.options import ROOT
from tests.deployment import Stack
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]

NODES = ("kafka-1", "kafka-2", "kafka-3")
SHARDS = 2


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack of three brokers and two shards, without the demo."""
    folder = tmp_path_factory.mktemp("stack")
    with Stack(folder, BROKERS="3", SHARDS=str(SHARDS), DEMO="0") as running:
        yield running


def test_each_broker_and_each_shard_is_a_part(stack: Stack) -> None:
    parts = set(stack.pids())
    assert {*NODES, *(f"worker-tail-{number}" for number in range(SHARDS))} <= parts
    assert "kafka" not in parts
    assert live_brokers(stack.described()["kafka"]) == {1, 2, 3}
    assert len(stack.described()["kafka"].split(",")) == len(NODES)


def test_every_shard_reads_its_share_and_the_scene_is_shown(stack: Stack) -> None:
    assert "has the id in Empty" in stack.manage("scene", "hanging")

    def tails() -> dict[str, Any]:
        found = {each["name"]: each for each in stack.api("collectors")["items"]}
        names = [f"transaction_state-{number}" for number in range(SHARDS)]
        return {name: found.get(name) for name in names}

    wait_for(
        lambda: all(each and each["alive"] and each["behind"] == 0 for each in tails().values()),
        "every shard has read to the end",
        120,
    )
    wait_for(lambda: stack.api("transactions?q=demo-stray-1")["items"], "the scene's id is seen", 60)


def test_no_local_program_chooses_the_address_that_is_limited(stack: Stack) -> None:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    page = opener.open(f"{stack.url}/login/").read().decode()
    csrf = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    fields = {"username": "admin", "password": "a guess, and wrong", "csrfmiddlewaretoken": csrf}
    found = []
    for number in range(8):
        invented = {"X-Forwarded-For": f"192.0.2.{number}", "Referer": stack.url}
        guess = urllib.request.Request(f"{stack.url}/login/", urlencode(fields).encode(), invented)
        try:
            found.append(opener.open(guess).status)
        except urllib.error.HTTPError as refused:
            found.append(refused.code)
    assert found == [200] * 4 + [429] * 4
    stack.manage("unlock_sign_in", "--all")


def test_its_folder_refuses_another_number_of_brokers(tmp_path: Path) -> None:
    (tmp_path / "kafka" / "data").mkdir(parents=True)
    variables = {"FENCELINE_DATA": str(tmp_path), "BROKERS": "3", "DATABASE_URL": ""}
    refused = subprocess.run(
        [sys.executable, "-m", "sandbox.up"], cwd=ROOT, env={**os.environ, **variables},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert f"{tmp_path}/kafka holds a Kafka of 1 broker: say BROKERS=1, or choose another" in refused.stderr
