"""Proves of the scenes of Flink, Streams and Connect, played into a whole stack with the real engines, that
each is one incident with the right cause and action, that the page of its id names who is behind it, and
that an agent over MCP is told the same within three calls."""

import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from sandbox.scenes.catalogue import SCENES
from tests.deployment import Stack
from tests.mcp_agent import Agent
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
DEADLINE_S = 60


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="fenceline-") as folder, Stack(Path(folder), DEMO="0") as stack:
        yield stack


class Poll:
    """What the stack shows of a scene that is played: its incidents, their actions, and pages of its ids."""

    def __init__(self, stack: Stack, subject: str) -> None:
        self._stack, self._subject, self._over = stack, subject, threading.Event()
        #: By number: rule and subject, as they were last.
        self.incidents: dict[int, tuple[str, str]] = {}
        self.actions: dict[int, set[str]] = {}
        self.pages: dict[str, str] = {}
        #: What the incidents' own pages had as evidence.
        self.evidence: dict[int, str] = {}
        #: What an agent is told of each while its cause lasts.
        self.explained: dict[int, list[Mapping[str, Any]]] = {}
        self.agent = Agent(stack)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def once(self) -> None:
        for each in self._stack.api("incidents")["items"]:
            named = self._subject in self._stack.page(f"/incidents/{each['number']}")
            if not named:
                continue
            number, subject = each["number"], each["subject"]
            self.incidents[number] = each["rule"], subject
            page = self._stack.page(f"/incidents/{number}")
            self.evidence[number] = page.partition('id="cause"')[2].partition("</section>")[0]
            found = re.search(r'name="act"\s+value="(\w+)"', page)
            self.actions.setdefault(number, set()).update([found[1]] if found else [])
            explained = self.agent.explain("sandbox", subject)
            if explained and explained["cause"]:
                self.explained.setdefault(number, []).append(explained["cause"])
            if subject.startswith("transaction:"):
                name = subject.removeprefix("transaction:")
                self.pages[name] = self._stack.page(f"/transactions/sandbox/{name}")

    def _run(self) -> None:
        while not self._over.wait(0.5):
            self.once()


def played(stack: Stack, scene: str) -> Poll:
    with Poll(stack, SCENES[scene].subject) as poll:
        stack.manage("scene", scene)
    assert poll.agent.calls <= 3
    return poll


def test_an_open_commit_of_a_killed_flink_job_is_one_incident_with_its_commit(stack: Stack) -> None:
    poll = played(stack, "flink-crash")

    def is_found() -> bool:
        poll.once()
        return any(rule == "flink_commit_pending" for rule, _ in poll.incidents.values())

    wait_for(is_found, "the job is found", DEADLINE_S)
    # Its transactions may be found first: then their incident goes on under the name of its cause.
    ((number, (_, subject)),) = poll.incidents.items()
    assert poll.actions[number] <= {"commit_flink"}
    assert "commit" in poll.explained[number][-1]["next_step"].lower()
    ident = subject.removeprefix("flink_job:")
    job = stack.page(f"/flink-jobs/sandbox/{ident}")
    assert "not yet committed" in job
    assert 'value="commit_flink"' in job


def test_a_paused_instance_of_streams_is_named_by_its_transaction(stack: Stack) -> None:
    poll = played(stack, "streams-zombie")
    ((number, (rule, subject)),) = poll.incidents.items()
    assert rule == "open_too_long"
    assert poll.actions[number] == {"fence"}
    # After its timeout it has only to wait for the coordinator.
    cause = poll.explained[number][0]
    assert SCENES["streams-zombie"].subject in cause["subject"]
    assert "fence" in cause["next_step"].lower()
    (page,) = poll.pages.values()
    process, _, thread = subject.removeprefix("transaction:demo-streams-").rpartition("-")
    for named in ("Kafka Streams", process, thread):
        assert named in page
    assert (
        f"Kafka Streams application demo-streams: process {process}, thread {thread}" in poll.evidence[number]
    )


def test_a_task_of_a_dead_connect_worker_is_named_and_idle_ones_are_not_taken_over(stack: Stack) -> None:
    poll = played(stack, "connect-restart")
    ((number, (rule, subject)),) = poll.incidents.items()
    assert (rule, subject) == ("open_too_long", "transaction:demo-connect-mirror-0")
    assert poll.actions[number] == {"fence"}
    assert "demo-connect-mirror-0" in poll.explained[number][0]["subject"]
    assert "fence" in poll.explained[number][0]["next_step"].lower()
    (page,) = poll.pages.values()
    assert "Kafka Connect" in page
    assert "Kafka Connect group demo-connect: connector mirror, task 0" in poll.evidence[number]
    assert "reinit" in kinds(stack, "demo-connect-mirror-2")
    assert "takeover" not in kinds(stack, "demo-connect-mirror-2")
    # What it had open was aborted by the new worker.
    assert kinds(stack, subject.removeprefix("transaction:")) & {"reinit", "takeover"}


def kinds(stack: Stack, name: str) -> set[str]:
    """Return what happened to a transactional id."""
    found: list[Any] = stack.api(f"transitions?transactional_id={name}")["items"]
    return {each["kind"] for each in found}
