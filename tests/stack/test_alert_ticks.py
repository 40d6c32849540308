"""Proves that a tick of alerts may be killed in the middle and raced by another: each group is notified
once.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.alert_processes import GROUPS, AlertProcesses
from tests.stack.postgres.server import Server


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.matrix), "postgresql"])
def alerting(request: pytest.FixtureRequest, tmp_path: Path) -> AlertProcesses:
    if request.param == "sqlite":
        return AlertProcesses(tmp_path, f"sqlite:///{tmp_path / 'fenceline.db'}")
    postgres: Server = request.getfixturevalue("postgres")
    return AlertProcesses(tmp_path, postgres.new_database())


def test_a_killed_tick_writes_nothing_and_two_racing_ticks_notify_each_group_once(
    alerting: AlertProcesses,
) -> None:
    with alerting.start("hang") as hanging:
        assert line(hanging) == "in the middle\n"
        hanging.kill()
    with alerting.start("race") as first, alerting.start("race") as second:
        for each in (first, second):
            assert json.loads(line(each)) == {"made": 0, "firing": 0, "fates": [], "groups": [], "ids": []}
        told = [json.loads(each.communicate("go\n")[0]) for each in (first, second)]
        assert [first.returncode, second.returncode] == [0, 0]
    assert sum(each["made"] for each in told) == GROUPS
    last = max(told, key=lambda each: len(each["ids"]))
    assert len(last["groups"]) == len(set(last["groups"])) == len(set(last["ids"])) == GROUPS
    assert last["firing"] == GROUPS
    assert [(len(fates), fates[0][1]) for fates in last["fates"]] == [(1, "delivery")] * GROUPS


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()
