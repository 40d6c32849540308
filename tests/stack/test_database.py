"""Proves that a missing SQLite file costs nothing but time.

tests/stack/day locks the file, and has a PostgreSQL that dies.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from django.db import connection

from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.deployment import Stack
from tests.transaction_load import Load
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.soak,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="locks and moves SQLite's file"),
]

DEADLINE_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        create_topics(broker.bootstrap, "load", partitions=4)
        yield broker


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("database") / "fenceline.db"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, broker: Broker, database: Path) -> Iterator[Stack]:
    folder, url = tmp_path_factory.mktemp("stack"), f"sqlite:///{database}"
    with Stack(folder, BOOTSTRAP=broker.bootstrap, DEMO="0", DATABASE_URL=url) as stack:
        yield stack


def states(stack: Stack) -> dict[str, str]:
    return {row["transactional_id"]: row["state"] for row in stack.api("transactions")["items"]}


def test_a_missing_database_is_reported_and_used_again_when_it_is_back(
    stack: Stack, broker: Broker, database: Path
) -> None:
    stack.api("collectors")
    # Its folder: SQLite's file and log must go and come at once, for a file without its log is another one.
    away = database.parent.rename(database.parent.with_name("away"))
    try:
        for part in ("web", "worker-tail-0", "worker-pollers"):
            stack.kill(part)
        refused = wait_for(lambda: status_of(stack), "the page answers without a database", DEADLINE_S)
        assert refused == 503
    finally:
        away.rename(database.parent)
    with Load(broker.bootstrap, ids=4) as load:
        began = time.time()
        wait_for(lambda: time.time() > began + 1, "some transactions", 5)
        load.finish()
    wait_for(lambda: status_of(stack) == 200 and states(stack) == load.told, "all is right again", DEADLINE_S)
    assert "Traceback" not in stack.log()


def status_of(stack: Stack) -> int:
    """Return the status of an API call, 0 while nothing answers."""
    try:
        stack.api("collectors")
    except HTTPError as error:
        return error.code
    except OSError:
        return 0
    return 200
