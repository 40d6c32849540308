"""Proves with a real worker of Kafka Connect that writes exactly once that its leader, connectors and tasks
are named from their ids, also after the connector was started with another number of tasks.

With a real Debezium on a real PostgreSQL its topics are told apart as well, by its settings and by its
heartbeat, also of a transaction that a killed worker left open; and rows are there once after the restart.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from collectors.engines import read_engine
from dashboard.config import EngineEndpoint
from dashboard.models import Transaction, TransitionRecord
from dashboard.transactions.producers import producer_identity
from dashboard.transactions.queries import partitions_of
from fenceline.engines.status import (
    ConnectorStatus,
    DebeziumTopic,
    DebeziumTopics,
    EngineKind,
    debezium_topic,
    topics_of_heartbeat,
)
from fenceline.facts import TransactionState
from fenceline.kafka.producer_identity import Engine
from sandbox.engines.kafka import ConnectWorker, connect_worker
from sandbox.kafka import Broker
from sandbox.scenes.scene_context import steady_input
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.topic_records import committed_values
from tests.stack.postgres.server import Server
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix, pytest.mark.django_db]
GROUP = "cdc-eu-1"
CONNECTOR, TOPIC = "orders-source", "connect-in"
#: Of Debezium.
SHOP, PREFIX = "shop-outbox", "shop"
TASK = f"{GROUP}-{SHOP}-0"
ROWS, HEARTBEAT, TRANSACTIONS = "shop.public.orders", "__debezium-heartbeat.shop", "shop.transaction"
JSON = "org.apache.kafka.connect.json.JsonConverter"
#: What leaves a transaction open for as long as the worker runs.
NEVER = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "600000"}


def identities(reader: CollectedGroups) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return what each id of the group is said to be."""
    reader.read_transactions()
    found = {}
    for row in Transaction.objects.filter(transactional_id__contains=GROUP):
        identity = producer_identity(row.cluster_id, row.transactional_id)
        assert identity is not None, row.transactional_id
        assert (identity.engine, identity.application) == (Engine.KAFKA_CONNECT, GROUP)
        found[row.transactional_id] = tuple(identity.parts)
    return found


def tasks(number: int) -> dict[str, tuple[tuple[str, str], ...]]:
    leader = {f"connect-cluster-{GROUP}": (("leader of", GROUP),)}
    return leader | {
        f"{GROUP}-{CONNECTOR}-{task}": (("connector", CONNECTOR), ("task", str(task)))
        for task in range(number)
    }


def test_leader_connector_and_tasks_are_named_over_a_restart_with_fewer_tasks(
    kafka_of_engine: Broker, reader: CollectedGroups, tmp_path: Path
) -> None:
    create_topics(kafka_of_engine.bootstrap, TOPIC)
    where = kafka_of_engine.bootstrap
    with connect_worker(tmp_path / "worker", where, GROUP) as worker, steady_input(where, TOPIC):
        worker.mirror(CONNECTOR, where, TOPIC, 3)
        wait_for(lambda: identities(reader) == tasks(3), "all ids are named", 60)
        worker.mirror(CONNECTOR, where, TOPIC, 1)
        # Before it starts fewer tasks, the leader initialises the id of each that there was (KIP-618).
        rows = TransitionRecord.objects.filter(
            transactional_id__startswith=f"{GROUP}-{CONNECTOR}", kind="reinit"
        )

        def are_fenced() -> bool:
            reader.read_transactions()
            return rows.values("transactional_id").distinct().count() == 3

        wait_for(are_fenced, "each task is fenced", 60)
        assert identities(reader) == tasks(3)


@pytest.fixture
def database() -> Iterator[str]:
    with Server({"wal_level": "logical"}) as server:
        url = server.new_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
        yield url


def settings(url: str) -> dict[str, str]:
    """Return the configuration of a connector of a database's table."""
    where = urlsplit(url)
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
        "database.hostname": where.hostname or "", "database.port": str(where.port),
        "database.user": where.username or "", "database.password": where.password or "",
        "database.dbname": where.path.removeprefix("/"), "topic.prefix": PREFIX, "plugin.name": "pgoutput",
        "table.include.list": "public.orders", "publication.autocreate.mode": "filtered",
        "heartbeat.interval.ms": "500", "provide.transaction.metadata": "true",
        "exactly.once.support": "required", "key.converter": JSON, "value.converter": JSON,
        "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
        "topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1",
    }  # fmt: skip


def insert(url: str, *numbers: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for number in numbers:
            connection.execute("INSERT INTO orders VALUES (%s)", [number])


def copied(broker: Broker) -> list[int]:
    """Return the ids of the rows that a read_committed consumer gets, sorted."""
    return sorted(json.loads(each)["after"]["id"] for each in committed_values(broker.bootstrap, ROWS))


def reported(worker: ConnectWorker) -> ConnectorStatus:
    answer = read_engine(EngineEndpoint(EngineKind.CONNECT, worker.address, "prod"))
    # Workers of one group keep the connectors of the test before.
    return next(connector for connector in answer.connectors if connector.name == SHOP)


def uses(reader: CollectedGroups, topics: DebeziumTopics) -> Mapping[str, DebeziumTopic | None]:
    """Return what each topic of the task's newest transaction is used for."""
    reader.read_transactions()
    row = Transaction.objects.filter(transactional_id=TASK).first()
    parts = partitions_of(row) if row else ()
    return {each.topic: debezium_topic(topics, each.topic) for each in parts}


def test_connector_task_and_topics_are_named_and_rows_are_there_once_after_a_kill(
    kafka_of_engine: Broker, database: str, reader: CollectedGroups, tmp_path: Path
) -> None:
    where = kafka_of_engine.bootstrap
    insert(database, *range(10))
    with connect_worker(tmp_path / "worker", where, GROUP, "connect-debezium") as worker:
        worker.configure(SHOP, 1, settings(database))
        insert(database, *range(10, 20))
        wait_for(lambda: copied(kafka_of_engine) == list(range(20)), "rows and changes are committed", 60)
        connector = reported(worker)
        assert (connector.kind, connector.state, len(connector.tasks)) == ("source", "RUNNING", 1)
        topics = connector.debezium
        assert topics == DebeziumTopics(PREFIX, HEARTBEAT, TRANSACTIONS)
        worker.configure(SHOP, 1, settings(database) | NEVER)
        own = {
            ROWS: DebeziumTopic.ROWS,
            HEARTBEAT: DebeziumTopic.HEARTBEAT,
            TRANSACTIONS: DebeziumTopic.TRANSACTIONS,
        }
        rows = count(20)
        seen: dict[str, DebeziumTopic | None] = {}

        def are_told_apart() -> bool:
            # The task of before may still get some.
            insert(database, next(rows))
            seen.clear()
            seen.update(uses(reader, topics))
            return own.items() <= seen.items()

        wait_for(are_told_apart, "its topics are told apart", 60)
    row = Transaction.objects.get(transactional_id=TASK)
    assert row.state == TransactionState.ONGOING
    assert topics_of_heartbeat(seen) == topics
    identity = producer_identity(row.cluster_id, TASK)
    assert identity is not None
    assert (identity.engine, identity.application) == (Engine.KAFKA_CONNECT, GROUP)
    assert dict(identity.parts) == {"connector": SHOP, "task": "0"}
    everything = range(next(rows) + 1)
    insert(database, everything[-1])
    with connect_worker(tmp_path / "worker", where, GROUP, "connect-debezium") as worker:
        worker.configure(SHOP, 1, settings(database))
        wait_for(lambda: copied(kafka_of_engine) == list(everything), "all rows are committed, each once", 90)
    reader.read_transactions()
    kinds = TransitionRecord.objects.filter(transactional_id=TASK).values_list("kind", flat=True)
    assert "reinit" in kinds, list(kinds)
