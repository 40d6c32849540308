"""Proves that a PostgreSQL may die under load (`make soak`)."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from sandbox.kafka import Broker
from tests import databases, offline_replay
from tests.brokers import create_topics
from tests.deployment import Stack
from tests.kafka.topic_records import raw_records
from tests.stack.postgres.server import Server
from tests.transaction_load import Load
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

DEADLINE_S = 60
IDS = 12


def states(stack: Stack) -> dict[str, str]:
    try:
        return {row["transactional_id"]: row["state"] for row in stack.api("transactions")["items"]}
    except OSError:
        return {}


@pytest.mark.soak
def test_the_database_may_be_killed_under_load(tmp_path: Path) -> None:
    """Everything is right again by itself; rows equal a replay of the log to the byte."""
    with Server() as server, Broker(tmp_path / "kafka") as broker:
        create_topics(broker.bootstrap, "load", partitions=4)
        variables = {"BOOTSTRAP": broker.bootstrap, "DEMO": "0", "DATABASE_URL": server.new_database()}
        with Stack(tmp_path, **variables) as stack:
            with Load(broker.bootstrap, IDS) as load:
                for _ in range(3):
                    wait_for(lambda: len(states(stack)) == IDS, "every id is seen", DEADLINE_S)
                    enough = load.ended + 50
                    wait_for(lambda enough=enough: load.ended >= enough, "the load goes on", DEADLINE_S)
                    server.stop(signal.SIGQUIT)
                    killed_at = time.time()
                    wait_for(lambda at=killed_at: time.time() > at + 1, "it is away", DEADLINE_S)
                    server.start()
                load.finish()
            wait_for(lambda: states(stack) == load.told, "what the clients were told", DEADLINE_S)
            records = list(raw_records(broker.bootstrap))
            ends = offline_replay.ends(records)

            def all_read() -> bool:
                with databases.reading(variables["DATABASE_URL"]) as cursor:
                    return {p: end for p, end in offline_replay.positions(cursor).items() if end} == ends

            wait_for(all_read, "every record is read", DEADLINE_S)
            with databases.reading(variables["DATABASE_URL"]) as cursor:
                found = offline_replay.stored_rows(cursor)
            wrong = offline_replay.differences(offline_replay.replay_records(records), found)
            assert not wrong, "\n".join(wrong)
            assert "Traceback" not in stack.log()
            assert "deadlock" not in stack.log()
