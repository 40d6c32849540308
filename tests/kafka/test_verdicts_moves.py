"""Proves that changes between polls are found correctly, or are a gap: topics that are deleted and recreated
or grow, leaders that go away and come back, rights that are missing, a collector that resumes."""

import random
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewPartitions, ResourceType
from django.test import override_settings

from dashboard.config import ClusterConfig, Config
from dashboard.flow.readers import outside_transactions
from dashboard.models import Collector, PartitionRecord, PinRecord, ReplicaLook
from dashboard.runtime import leases
from dashboard.tasks import polls as task
from fenceline.facts import TopicPartition
from fenceline.flow.observations import ProducerKind
from fenceline.kafka.partitions import PartitionVerdict, VerdictReason
from fenceline.limits import Limits
from sandbox.kafka import Broker
from sandbox.ports import free_port
from sandbox.scenes import wire
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.doctor_checks import grant_describe, signed_in
from tests.kafka.driven import only_cluster, take_round
from tests.kafka.group_commits import delete_topic
from tests.kafka.producers import open_in
from tests.kafka.stray_records import identity_of, write_stray_records
from tests.waiting import wait_for
from tests.web import roles
from transaction_admin.api import AdminUnavailable

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

OWNED = PartitionVerdict.OPEN, VerdictReason.OWNED


@pytest.fixture
def collected(kafka_42: Broker) -> Iterator[CollectedPartitions]:
    made = CollectedPartitions(kafka_42.bootstrap)
    yield made
    made.close()


@pytest.fixture
def name(kafka_42: Broker) -> str:
    """A topic of three partitions, and an id of the same name."""
    made = f"moves-{random.getrandbits(40):x}"
    create_topics(kafka_42.bootstrap, made)
    return made


def test_a_deleted_topic_is_removed_after_two_full_polls(
    kafka_42: Broker, collected: CollectedPartitions, name: str
) -> None:
    open_in(kafka_42.bootstrap, name, name, 0)
    collected.poll_repeatedly(2)
    assert collected.blockers(name)
    delete_topic(kafka_42.bootstrap, name)
    # One that looks at what is held alone leaves it to the next look at all.
    collected.poll(full=False)
    assert collected.watcher._full_at == collected.watcher._held_at
    collected.poll()
    assert PartitionRecord.objects.filter(topic=name).count() == 3
    collected.poll()
    assert not PartitionRecord.objects.filter(topic=name).exists()
    assert not PinRecord.objects.filter(topic=name).exists()
    assert collected.gaps() == {}


def test_a_recreated_topic_has_no_facts_of_the_former_one(
    kafka_42: Broker, collected: CollectedPartitions, name: str
) -> None:
    """Fewer partitions, smaller offsets, the same name: a new transaction, with a clock of its own."""
    open_in(kafka_42.bootstrap, name, name, 0, 2)
    collected.poll_repeatedly(2)
    before, (old,) = collected.row(name), collected.blockers(name)
    delete_topic(kafka_42.bootstrap, name)
    create_topics(kafka_42.bootstrap, name, partitions=2)
    # Another id: the same one's marker for the transaction before would be the first of the new log.
    open_in(kafka_42.bootstrap, f"{name}-2", name, 0)
    for full in (False, True, False, True):
        collected.poll(full=full)
    row, (new,) = collected.row(name), collected.blockers(name)
    assert row.topic_id != before.topic_id
    assert new.first_seen_ms > old.first_seen_ms
    assert row.pinned_ms == new.first_seen_ms
    assert (row.lso, row.high_watermark, row.verdict) == (0, 1, "open")
    assert PartitionRecord.objects.filter(topic=name).count() == 2
    assert not PinRecord.objects.filter(topic=name, partition=2).exists()
    # No end of the old topic is left.
    assert len(row.ends.split("],[")) == 1


def test_added_partitions_are_found_by_the_next_full_poll(
    kafka_42: Broker, collected: CollectedPartitions, name: str
) -> None:
    collected.poll()
    client = AdminClient({"bootstrap.servers": kafka_42.bootstrap})
    client.create_partitions([NewPartitions(name, 5)])[name].result(30)
    wait_for(
        lambda: collected.poll() and not PartitionRecord.objects.filter(topic=name).exclude(error="").exists()
        and PartitionRecord.objects.filter(topic=name).count() == 5,
        "all five are seen",
    )  # fmt: skip
    open_in(kafka_42.bootstrap, name, name, 4)
    collected.poll_repeatedly(2)
    assert collected.verdicts(name, 4) == [(name, *OWNED)]


def test_between_full_polls_only_blocked_or_named_partitions_are_polled(
    kafka_42: Broker, collected: CollectedPartitions, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected.poll()
    open_in(kafka_42.bootstrap, name, name, 0)
    asked: list[set[TopicPartition]] = []
    offsets = collected.watcher._reads.list_offsets
    monkeypatch.setattr(
        collected.watcher._reads,
        "list_offsets",
        lambda wanted: (asked.append(set(wanted)), offsets(wanted))[1],
    )
    mine = TopicPartition(name, 0)
    # Nothing is known to be held yet; the row of the open transaction names it.
    collected.poll(full=False)
    assert all(mine not in each for each in asked)
    monkeypatch.setattr(collected.ours, "named_partitions", lambda: {mine, TopicPartition("nowhere", 0)})
    collected.poll(full=False)
    assert mine in asked[-1]
    monkeypatch.setattr(collected.ours, "named_partitions", set)
    collected.poll(full=False)
    assert collected.verdicts(name) == [(name, *OWNED)]
    assert TopicPartition(name, 1) not in asked[-1]


def test_full_polls_have_their_own_interval(collected: CollectedPartitions) -> None:
    """A full poll takes no more than a twentieth of the time, and comes every two seconds at most."""
    collected.watcher._every_s = 1.0
    collected.watcher._pace(full=True, took_s=0.01)
    now = time.monotonic()
    assert 1.5 < collected.watcher._full_at - now <= 2.0
    assert 0.5 < collected.watcher.wait_s() <= 1.0
    collected.watcher._pace(full=True, took_s=2.0)
    assert collected.watcher._full_at - time.monotonic() <= 2.0, "one slow look is no habit"
    collected.watcher._pace(full=True, took_s=2.0)
    assert 39.0 < collected.watcher._full_at - time.monotonic() <= 40.0
    for _ in range(2):
        collected.watcher._pace(full=False, took_s=2.0)
    assert 9.0 < collected.watcher.wait_s() <= 10.0


def test_an_unavailable_leader_is_a_gap_until_it_returns(acl_broker: Broker) -> None:
    """The only broker stops: nothing can be polled. It comes back with the transaction still open."""
    create_topics(acl_broker.bootstrap, "away")
    open_in(acl_broker.bootstrap, "away", "away", 0)
    given = identity_of(acl_broker, "stray")
    write_stray_records(acl_broker, "stray", given, ("away", 1))
    collected = CollectedPartitions(acl_broker.bootstrap)
    collected.poll_repeatedly()
    before = collected.blockers("away")[0].first_seen_ms
    assert collected.verdicts("away", 1) == [
        ("stray", PartitionVerdict.HANGING, VerdictReason.NOT_ITS_PARTITION)
    ]
    acl_broker.stop()
    try:
        with pytest.raises(AdminUnavailable):
            collected.poll()
    finally:
        acl_broker.start()
        acl_broker.wait_ready()

    def is_available_again() -> bool:
        try:
            collected.poll()
        except AdminUnavailable:
            return False
        # What could not be seen while it started is a gap, and never another verdict.
        for number, expected in (
            (0, {OWNED}),
            (1, {(PartitionVerdict.HANGING, VerdictReason.NOT_ITS_PARTITION)}),
        ):
            told = {pin[1:] for pin in collected.verdicts("away", number)}
            assert told <= expected | {(PartitionVerdict.UNKNOWN, VerdictReason.UNSEEN)}
            if told != expected:
                assert collected.gaps()
        return not collected.gaps()

    wait_for(is_available_again, "all is seen again", 60)
    assert collected.verdicts("away") == [("away", *OWNED)]
    assert collected.blockers("away")[0].first_seen_ms == before
    collected.close()


def test_an_unreadable_topic_is_unknown_and_a_gap_with_the_grant(acl_broker: Broker) -> None:
    topic = f"moves-{random.getrandbits(40):x}"
    create_topics(acl_broker.bootstrap, topic)
    open_in(acl_broker.bootstrap, topic, topic, 0)
    set_acl(acl_broker, "mover", ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    with closing(
        CollectedPartitions("", properties=signed_in(acl_broker, "mover"), vouched=False)
    ) as collected:
        wait_for(
            lambda: collected.poll() and PartitionRecord.objects.filter(topic=topic), "the topic is seen"
        )
        collected.poll_repeatedly(3)
        row = collected.row(topic)
        assert (row.verdict, row.lso, row.high_watermark) == ("unknown", 0, 1)
        assert "--operation READ --topic" in row.error
        assert collected.gaps() == {f"partition:{topic}-0": row.error}
        set_acl(acl_broker, "mover", ResourceType.TOPIC, topic, AclOperation.READ)
        wait_for(lambda: collected.poll() and collected.blockers(topic), "its producers are seen")
        assert collected.gaps() == {}
        # Whose it is may be hidden: no accusation.
        collected.poll_repeatedly(3)
        assert collected.verdicts(topic) == [("", PartitionVerdict.UNKNOWN, VerdictReason.MAY_BE_HIDDEN)]
        grant_describe(acl_broker, "mover", topic)
        wait_for(
            lambda: collected.poll() and collected.verdicts(topic) == [(topic, *OWNED)], "its id may be seen"
        )


def test_the_task_polls_saves_and_resumes_after_an_outage(
    kafka_42: Broker, collected: CollectedPartitions, name: str
) -> None:
    open_in(kafka_42.bootstrap, name, name, 0)
    where = collected.name
    limits = Limits(partitions_every_s=0.05)
    alive = Config(clusters={where: ClusterConfig(where, collected.properties, True)}, limits=limits)
    dead = Config(clusters={where: ClusterConfig(where, NOBODY_THERE)}, limits=limits)
    try:
        with override_settings(FENCELINE=dead):
            take_round(task.poll_in_turns(collected.lease))
        assert "check that it runs" in collected.collector().error
        assert list(collected.gaps()) == ["cluster"]
        with override_settings(FENCELINE=alive):
            wait_for(lambda: followed(collected.lease) and collected.blockers(name), "it is seen", 60)
            assert (collected.collector().error, collected.gaps()) == ("", {})
            warm = task._watchers[where][0]
            followed(collected.lease)
            assert task._watchers[where][0] is warm
            # Somebody else has held the lease since: what is remembered here may be outdated.
            token = collected.lease.token + 2
            Collector.objects.filter(name=collected.lease.name).update(token=token)
            followed(replace(collected.lease, token=token))
            assert task._watchers[where][0] is not warm
            with pytest.raises(leases.LeaseLost):
                followed(collected.lease)
            assert where not in task._watchers
    finally:
        task.disconnect(where)


NOBODY_THERE = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}


def followed(lease: leases.Lease) -> bool:
    take_round(task.poll_in_turns(lease))
    return True


def test_replicas_are_polled_one_by_one_for_every_producer(
    kafka_42: Broker, collected: CollectedPartitions, name: str
) -> None:
    open_in(kafka_42.bootstrap, name, name, 0)
    collected.poll_repeatedly(2)
    with only_cluster(collected.name, collected.properties):
        task.poll_replicas(collected.name, name, 0)
        task.poll_replicas("no-such-cluster", name, 0)
    assert ReplicaLook.objects.get().before_ms is None
    look = ReplicaLook.objects.get()
    assert (look.broker, look.leads, look.error) == (1, True, "")
    (producer,) = look.producers
    (pin,) = collected.blockers(name)
    assert (producer["producer_id"], producer["start_offset"]) == (pin.producer_id, pin.start_offset)
    assert producer["transactional_id"] == name
    assert look.writers["transactional"] == 1
    assert (look.writers["idempotent"], look.writers["plain"]) == (0, 0)
    with only_cluster(collected.name, NOBODY_THERE):
        task.poll_replicas(collected.name, name, 0)
    assert "check that it runs" in ReplicaLook.objects.get().error


def test_records_outside_of_transactions_are_counted_by_kind_and_make_the_topic_at_least_once(
    kafka_42: Broker, collected: CollectedPartitions, name: str
) -> None:
    where = {"bootstrap.servers": kafka_42.bootstrap}
    for number, settings in ((2, {"enable.idempotence": True}), (3, {"enable.idempotence": False})):
        producer = Producer({**where, **settings})
        for _ in range(number):
            producer.produce(name, b"x", partition=0)
            producer.flush(30)
    collected.poll_repeatedly(2)
    look = ask(collected, name)
    kinds = [look.writers[kind] for kind in ("transactional", "idempotent", "plain")]
    assert kinds == [0, 2, 3]
    ((producer_id, records),) = look.writers["producers"]
    assert (producer_id, records) == (look.producers[0]["producer_id"], 2)
    assert outside_transactions(look.cluster_id) == {name: ProducerKind.PLAIN}
    page = roles.client_with_role("viewer").get(f"/partitions/{collected.name}/{name}/0").content.decode()
    assert "2 by idempotent" in page
    assert "3 by plain ones" in page


FORGETFUL = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "100"}


def test_a_resend_that_a_forgetful_leader_stores_is_shown(tmp_path: Path) -> None:
    with Broker(tmp_path, properties=FORGETFUL) as broker, wire.Connection(broker.bootstrap) as client:
        create_topics(broker.bootstrap, "t", partitions=1)
        collected = CollectedPartitions(broker.bootstrap)
        collected.poll()
        identity = wire.init_idempotent(client)
        assert send(client, identity, 0) == send(client, identity, 0) == 0
        assert send(client, identity, 1) == 1
        first = ask(collected)
        (producer,) = first.producers
        assert (producer["producer_id"], producer["last_sequence"]) == (identity.producer_id, 1)
        assert (first.writers["following"], first.writers["broken"]) == (1, 0)
        wait_for(lambda: not ask(collected).producers, "the leader forgets the producer", 60)
        # By now its state is what the leader forgot; the row keeps what was known at an answer before.
        assert send(client, identity, 0) == 2
        look = ask(collected)
        assert look.writers["breaks"] == [[2, identity.producer_id, identity.epoch, 1, 0, "repeat"]]
        page = roles.client_with_role("viewer").get(f"/partitions/{collected.name}/t/0").content.decode()
        assert "may have stored a resend" in page
        collected.close()


def ask(collected: CollectedPartitions, topic: str = "t") -> ReplicaLook:
    with only_cluster(collected.name, collected.properties):
        task.poll_replicas(collected.name, topic, 0)
    return ReplicaLook.objects.get()


def send(client: wire.Connection, identity: wire.Identity, sequence: int) -> int:
    return wire.produce_records(client, None, identity, ("t", 0), [b"x"], sequence=sequence)
