"""Proves that without Redis nothing is lost: collectors continue, pages answer, all is live again after
it.
"""

import json
import urllib.request
from datetime import datetime
from pathlib import Path
from urllib.error import HTTPError

import pytest

from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.deployment import Stack
from tests.stack.redis_server import RedisServer
from tests.transaction_load import Load
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

DEADLINE_S = 60
#: Longer than a slice of 30 s: its end, where the next one is sent through Redis, falls into the outage.
OUTAGE_S = 40


def readiness(stack: Stack) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"{stack.url}/readyz", timeout=10) as answer:
            return dict(json.load(answer))
    except HTTPError as refused:
        return dict(json.load(refused))


def seen_through_s(stack: Stack) -> float:
    """Return the instant up to which everything was seen, in seconds; 0 before the first look."""
    seen = stack.api("collectors")["as_of"]
    return datetime.fromisoformat(seen).timestamp() if seen else 0


def test_collectors_and_pages_continue_without_redis(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker, RedisServer(tmp_path) as server:
        create_topics(broker.bootstrap, "load", partitions=2)
        variables = {"BOOTSTRAP": broker.bootstrap, "REDIS_URL": server.url}
        with Stack(tmp_path, DEMO="0", **variables) as stack, Load(broker.bootstrap, ids=4) as load:
            assert readiness(stack) == {"database": True, "redis": True, "migrations": True}
            began = wait_for(lambda: seen_through_s(stack), "the first look", DEADLINE_S)
            server.kill()
            wait_for(
                lambda: seen_through_s(stack) > began + OUTAGE_S, "collectors read on", OUTAGE_S + DEADLINE_S
            )
            assert "Error" in str(readiness(stack)["redis"])
            assert "live-words" in stack.page("/")
            server.start()
            wait_for(lambda: readiness(stack)["redis"] is True, "Redis is used again", DEADLINE_S)
            back = seen_through_s(stack)
            load.finish()
            wait_for(lambda: seen_through_s(stack) > back + 5, "collectors go on behind it", DEADLINE_S)
            rows = stack.api("transactions")["items"]
            assert {row["transactional_id"]: row["state"] for row in rows} == load.told
            assert "Traceback" not in stack.log()
