"""Proves that any part may be killed at any time under load: the state is right again by itself, soon.

The oracle is what the clients were told: the last acknowledged commit or abort of every id.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sandbox.kafka import Broker
from tests.load import Load
from tests.stack import Stack
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

KILLS = 10
IDS = 12
#: Five times the figure of the issue (right again within 10 s), as every wait in a test.
DEADLINE_S = 50
PARTS = ("worker-tail-0", "worker-pollers", "beat", "redis", "web")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "kafka") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("load", 4, 1)])["load"].result(30)
        yield broker


def states(stack: Stack) -> dict[str, str]:
    try:
        return {row["transactional_id"]: row["state"] for row in stack.api("transactions?q=load-")["items"]}
    except OSError:
        return {}


def is_fresh(stack: Stack, since: float) -> bool:
    """Whether everything up to `since`, an instant of now, has been seen."""
    try:
        as_of = stack.api("collectors")["as_of"]
    except OSError:
        return False
    return as_of is not None and as_of > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since))


def test_any_part_may_be_killed_under_load(tmp_path: Path, broker: Broker) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    with Stack(tmp_path, BOOTSTRAP=broker.bootstrap, DEMO="0") as stack:
        with Load(broker.bootstrap, IDS) as load:
            wait_for(lambda: len(states(stack)) == IDS, "every id is seen", DEADLINE_S)
            for part in (dice.choice(PARTS) for _ in range(KILLS)):
                stack.kill(part)
                killed_at = time.time()
                wait_for(
                    lambda at=killed_at: is_fresh(stack, at + 1), f"sight again after {part}", DEADLINE_S
                )
                print(f"killed {part}: everything seen again after {time.time() - killed_at:.1f} s")
            load.finish()
        wait_for(lambda: states(stack) == load.told, "what the clients were told", DEADLINE_S)
        collectors = stack.api("collectors")["items"]
        assert all(row["error"] == "" and row["undecoded"] == {} for row in collectors)
