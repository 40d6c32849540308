"""Proves with a real worker of Kafka Connect that writes exactly once: its leader, connectors and tasks are
named from their ids, also after the connector was started with another number of tasks."""

from pathlib import Path

import pytest

from dashboard.models import Transaction, TransitionRecord
from dashboard.transactions.producers import producer_identity
from fenceline.kafka.producer_identity import Engine
from sandbox.engines.connect import connect_worker
from sandbox.kafka import Broker
from sandbox.scenes.scene_context import steady_input
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix, pytest.mark.django_db]

GROUP, CONNECTOR, TOPIC = "cdc-eu-1", "orders-source", "connect-in"


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
