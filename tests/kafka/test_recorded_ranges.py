"""Proves that the events of a time are what a script of real clients did in it, and nothing else.

On the page and in the API; each of 20 scripts keeps a list of its own. `FENCELINE_SEED` gives other scripts.
Both are asked for the script's ids alone: what other tests have left open on the broker may end meanwhile.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

import pytest
from django.contrib.auth.models import User
from django.test import Client
from py4j.java_gateway import JavaGateway

from dashboard.runtime import loop
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin
from tests.kafka.driven import collected_transactions
from tests.kafka.producers import LibrdkafkaProducer, open_in
from tests.seeds import SEED
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

RUNS, MORE_RUNS, MOST_STEPS = 5, 20, 6
TOPIC = "recorded-ranges"
#: What the ids of the script begin with, and no other test's.
PREFIX = "recorded-"


@dataclass
class RecordedRun:
    """The instants around a script, and what it did in between: each event's word and transactional id."""

    from_ms: int
    to_ms: int = 0
    done: Counter[tuple[str, str]] = field(default_factory=Counter)


class ScriptedClients:
    """Clients that leave known events; a commit, and a first initialisation, leave none."""

    def __init__(self, bootstrap: str, admin: JavaAdmin) -> None:
        self._bootstrap, self._admin, self._numbers = bootstrap, admin, count()

    def commit(self) -> Counter[tuple[str, str]]:
        self._open()[1].commit()
        return Counter()

    def abort(self) -> Counter[tuple[str, str]]:
        name, producer = self._open()
        producer.abort()
        return Counter({("client_abort", name): 1})

    def take_over(self) -> Counter[tuple[str, str]]:
        name, _zombie = self._open()
        successor = LibrdkafkaProducer(self._bootstrap, name)
        successor.init()
        return Counter({("takeover", name): 1})

    def fence(self) -> Counter[tuple[str, str]]:
        name, _zombie = self._open()
        self._admin.fence_producers([name])
        return Counter({("admin_fence", name): 1})

    def restart(self) -> Counter[tuple[str, str]]:
        name, producer = self._open()
        producer.commit()
        LibrdkafkaProducer(self._bootstrap, name).init()
        return Counter({("reinit", name): 1})

    def _open(self) -> tuple[str, LibrdkafkaProducer]:
        name = f"{PREFIX}{next(self._numbers)}"
        return name, open_in(self._bootstrap, name, TOPIC, 0)

    def steps(self) -> tuple[Callable[[], Counter[tuple[str, str]]], ...]:
        return self.commit, self.abort, self.take_over, self.fence, self.restart


def next_instant(after_ms: int) -> int:
    """Wait until the clock of broker and test, which is the same, shows a later millisecond."""
    return wait_for(loop.now_ms, "the next millisecond", until=lambda now_ms: now_ms > after_ms, rest_s=0.001)


@pytest.fixture(params=[RUNS, pytest.param(MORE_RUNS, marks=pytest.mark.matrix)])
def runs(request: pytest.FixtureRequest, kafka_42: Broker, java: JavaGateway) -> list[RecordedRun]:
    """Scripts that have run one after another, and all that they wrote collected."""
    create_topics(kafka_42.bootstrap, TOPIC)
    dice, made, at_ms = random.Random(SEED), [], loop.now_ms()
    with JavaAdmin(java, kafka_42.bootstrap) as admin:
        clients = ScriptedClients(kafka_42.bootstrap, admin)
        for _ in range(request.param):
            run = RecordedRun(next_instant(at_ms))
            for step in dice.choices(clients.steps(), k=dice.randint(1, MOST_STEPS)):
                run.done += step()
            at_ms = run.to_ms = next_instant(loop.now_ms())
            made.append(run)
    collected_transactions(kafka_42.bootstrap)
    return made


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def asked_range(from_ms: int, to_ms: int) -> Mapping[str, str]:
    """Return the query of both lists: every transition of the script's ids in a range, each by itself."""
    return {"from": iso(from_ms), "to": iso(to_ms), "source": "transition", "unfolded": "1", "q": PREFIX}


def api_events(reader: Client, asked: Mapping[str, str]) -> Counter[tuple[str, str]]:
    found = reader.get("/api/v1/events", {**asked, "limit": "100"}).json()
    assert found["next"] is None
    return Counter((each["what"], each["subject"].removeprefix("transaction:")) for each in found["items"])


def test_the_events_of_a_range_are_what_was_done_in_it(runs: list[RecordedRun]) -> None:
    reader = Client()
    reader.force_login(User.objects.create_superuser("reader"))
    for number, run in enumerate(runs):
        asked = asked_range(run.from_ms, run.to_ms)
        assert api_events(reader, asked) == run.done, f"run {number} of seed {SEED}"
        shown = re.findall(r'data-event="(\w+)"', reader.get("/events", asked).content.decode())
        assert Counter(shown) == Counter(what for what, _ in run.done.elements()), f"run {number}"
    whole = asked_range(runs[0].from_ms, runs[-1].to_ms)
    everything: Counter[tuple[str, str]] = sum((run.done for run in runs), Counter())
    assert api_events(reader, whole) == everything
