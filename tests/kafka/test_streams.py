"""Proves with real instances of Kafka Streams, in both protocols of their group, that each id is attributed
to its instance, thread and machine, that its own topics are told apart, and that an instance that is paused
past its timeout is the one whose transaction is reported as timed out."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from py4j.java_gateway import JavaGateway

from dashboard.groups.queries import group_stores
from dashboard.models import Group, Transaction, TransitionRecord
from dashboard.transactions.producers import producer_identity
from fenceline.engines.status import StreamsStore
from fenceline.kafka.producer_identity import Engine, StreamsTopic, streams_topic
from sandbox.engines.kafka import StreamsInstance, streams_instance
from sandbox.kafka import Broker
from sandbox.scenes.scene_context import steady_input
from tests.brokers import create_topics
from tests.java.tools import KafkaTool
from tests.kafka.collected_groups import CollectedGroups
from tests.waiting import wait_for
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.matrix, pytest.mark.django_db]

#: A member is gone after so long, and a transaction times out.
SESSION_MS, TRANSACTION_MS = 6_000, 10_000
CONFIG = "kafka.admin.ConfigCommand"


@contextmanager
def application(
    broker: Broker, folder: Path, name: str, instances: int, protocol: str = "classic"
) -> Iterator[list[StreamsInstance]]:
    """Start the instances of an application, and wait until all have tasks."""
    source, target = f"{name}-in", f"{name}-out"
    create_topics(broker.bootstrap, source, target)
    settings = {
        "application.id": name, "bootstrap.servers": broker.bootstrap, "group.protocol": protocol,
        "commit.interval.ms": "2000", "producer.transaction.timeout.ms": str(TRANSACTION_MS),
    }  # fmt: skip
    # Without it counts are sent at the commit only, and a transaction is open for some milliseconds.
    settings["statestore.cache.max.bytes"] = "0"
    if protocol == "classic":
        settings |= {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "1000"}
    with ExitStack() as stack, steady_input(broker.bootstrap, source):
        started = [
            stack.enter_context(streams_instance(folder / f"{number}", source, target, settings))
            for number in range(instances)
        ]
        for each in started:
            each.wait_running()
        yield started


def streams_ids(reader: CollectedGroups, name: str, number: int) -> list[str]:
    """Wait until so many ids of an application are known; return them."""

    def known() -> list[str]:
        reader.read_transactions()
        rows = Transaction.objects.filter(transactional_id__startswith=f"{name}-")
        return sorted(rows.values_list("transactional_id", flat=True))

    wait_for(lambda: len(known()) >= number, "all ids", 60)
    return known()


@pytest.mark.parametrize(("protocol", "kind"), [("classic", "Classic"), ("streams", "Streams")])
def test_each_id_is_attributed_to_its_instance(
    kafka_of_engine: Broker, reader: CollectedGroups, tmp_path: Path, protocol: str, kind: str
) -> None:
    if protocol == "streams" and kafka_of_engine.version == "4.0.0":
        pytest.skip("KIP-1071 begins with Kafka 4.1")
    name = f"counts-{protocol}"
    with application(kafka_of_engine, tmp_path, name, 1, protocol) as (instance,):
        (transactional_id,) = streams_ids(reader, name, 1)
        assert reader.poll(2)[name].kind == kind
        row = Transaction.objects.get(transactional_id=transactional_id)
        found = producer_identity(row.cluster_id, transactional_id)
        assert found is not None
        assert (found.engine, found.application, found.group) == (Engine.KAFKA_STREAMS, name, name)
        assert found.parts == (("process", instance.process), ("thread", "1"))
        assert found.host == "127.0.0.1"
        assert found.sign
        topics = AdminClient({"bootstrap.servers": kafka_of_engine.bootstrap}).list_topics(timeout=30).topics
        uses = [streams_topic(name, topic) for topic in topics]
        assert uses.count(StreamsTopic.CHANGELOG) == 1
        assert uses.count(StreamsTopic.REPARTITION) == 0


def test_a_store_has_its_changelog_sources_active_and_standby_tasks(
    kafka_of_engine: Broker, java: JavaGateway, reader: CollectedGroups, tmp_path: Path
) -> None:
    if kafka_of_engine.version == "4.0.0":
        pytest.skip("KIP-1071 begins with Kafka 4.1")
    name = "stores"
    config = ["--alter", "--entity-type", "groups", "--entity-name", name]
    tool = KafkaTool(kafka_of_engine, java)
    tool.run(CONFIG, *config, "--add-config", "streams.num.standby.replicas=1")
    with application(kafka_of_engine, tmp_path, name, 2, "streams"):

        def told() -> StreamsStore | None:
            with closing(ClusterReads({"bootstrap.servers": kafka_of_engine.bootstrap})) as reads:
                stores = reads.streams_stores([name])[name]
            assert not isinstance(stores, Unseen), stores
            return next((store for store in stores if store.standby), None)

        store = wait_for(told, "a standby task is assigned", 120)
        assert store is not None
        assert store.name_in(name).startswith("KSTREAM-AGGREGATE-STATE-STORE")
        assert store.sources == (f"{name}-in",)
        assert (store.active, store.standby) == (3, 3)
        assert reader.poll(2)[name].kind == "Streams"
        (shown,) = group_stores(Group.objects.get(group_id=name))
        assert shown["changelog"] == store.changelog


def test_an_instance_that_is_paused_past_its_timeout_is_the_one_that_is_named(
    kafka_of_engine: Broker, reader: CollectedGroups, tmp_path: Path
) -> None:
    with application(kafka_of_engine, tmp_path, "paused", 3) as instances:
        streams_ids(reader, "paused", 3)
        zombie, *others = instances
        process = zombie.process
        is_open = Transaction.objects.filter(transactional_id__contains=process, state="Ongoing")

        def paused_amid() -> bool:
            # It has run for as long as this takes.
            reader.read_transactions()
            zombie.pause()
            reader.read_transactions()
            if is_open.exists():
                return True
            zombie.resume()
            return False

        wait_for(paused_amid, "it is paused amid a transaction", 60)
        timeouts = TransitionRecord.objects.filter(kind="timeout", application="paused")

        def timed_out() -> bool:
            reader.read_transactions()
            return timeouts.exists()

        wait_for(timed_out, "its transaction times out", 60)
        zombie.resume()
        wait_for(lambda: zombie.state == "RUNNING", "it has come back", 120)
        reader.read_transactions()
        reader.poll(2)
        (event,) = timeouts
        found = producer_identity(event.cluster_id, event.transactional_id)
        assert found is not None
        assert dict(found.parts)["process"] == process
        assert {each.process for each in others}.isdisjoint({process})
