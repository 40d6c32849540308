"""Proves that an agent over MCP, and a person at the command line, name cause, subject and next step of what
the scenes of one broker leave, within three calls; neither can execute anything."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.kafka import Broker
from sandbox.scenes import scenes
from sandbox.scenes.scene_context import Stage
from tests.brokers import PROPERTIES
from tests.deployment import Stack
from tests.mcp_agent import Agent
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
CONFIG = """
[clusters.shop]
"bootstrap.servers" = "{bootstrap}"

[limits]
open_too_long_s = 5
open_usual_s = 5
lso_pinned_s = 5
group_stalled_s = 5
"""
#: Scenes that end by themselves: the id, and what its event is called.
EVENTS = {
    "zombie": ("demo-zombie", {"takeover"}),
    "timeout": ("demo-timeout", {"timeout", "abort"}),
    "fence": ("demo-fence", {"admin_fence", "takeover", "abort"}),
    "crash-before-offsets": ("demo-crash-before-offsets", {"takeover", "abort"}),
    "rotation": ("demo-rotation", {"rotation"}),
}
#: Scenes that leave something: the subject of the incident, and a word of the next step.
INCIDENTS = {"abandoned": ("demo-abandoned", "fence"), "hanging": ("demo-hanging-0", "abort")}
_DEADLINE_S = 120


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose broker has played every scene."""
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    folder = tmp_path_factory.mktemp("agents")
    with Broker(tmp_path_factory.mktemp("kafka"), properties=PROPERTIES | often) as broker:
        assert broker.process
        (folder / "fenceline.toml").write_text(CONFIG.format(bootstrap=broker.bootstrap))
        with Stack(folder, CONFIG=str(folder / "fenceline.toml"), DEMO="0") as stack:
            stage = Stage(broker.bootstrap, {broker.node_id: broker.process.pid})
            for scene in (*EVENTS, *INCIDENTS):
                scenes.play(scene, stage, lambda line: None)
            yield stack


@pytest.mark.parametrize("scene", EVENTS)
def test_an_agent_names_what_happened(stack: Stack, scene: str) -> None:
    subject, kinds = EVENTS[scene]
    agent = Agent(stack)

    def told() -> Any:
        agent.calls = 0
        events = agent.call("list_events", cluster="shop", last="1h", limit=100)["items"]
        mine = (event for event in events if event["subject"] == f"transaction:{subject}")
        return next((event for event in mine if event["what"] in kinds), None)

    event = wait_for(told, f"{scene} is told", _DEADLINE_S)
    assert event["text"]
    detail = agent.call("get_transaction", cluster="shop", transactional_id=subject)
    assert detail["state"] in ("Empty", "CompleteAbort", "CompleteCommit")
    assert agent.calls <= 3


@pytest.mark.parametrize("scene", INCIDENTS)
def test_an_agent_names_cause_and_next_step(stack: Stack, scene: str) -> None:
    subject, step = INCIDENTS[scene]
    agent = Agent(stack)
    explained = wait_for(
        lambda: agent.explain("shop", subject), f"the incident of {scene} is open", _DEADLINE_S
    )
    assert step in explained["cause"]["next_step"].lower()
    assert explained["cause"]["evidence"]
    assert agent.calls <= 3


@pytest.mark.parametrize(("scene", "step"), [("abandoned", "fence"), ("hanging", "abort")])
def test_a_person_at_a_terminal_is_told_the_same(stack: Stack, tmp_path: Path, scene: str, step: str) -> None:
    subject, _ = INCIDENTS[scene]
    environment = os.environ | {
        "FENCELINE_URL": stack.url,
        "FENCELINE_TOKEN": Agent(stack).token,
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    def asked() -> str:
        command = [sys.executable, "-m", "fenceline_client.main", "why", subject]
        out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout
        return out if step in out.lower() else ""

    assert subject in wait_for(asked, f"why {subject} has the next step", _DEADLINE_S)
