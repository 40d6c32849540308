"""Proves on three brokers that no stop or restart of a leader makes a wrong verdict, that what is unavailable
meanwhile is a gap, that a transaction stuck in Prepare* is late and gets no action, nor does one without its
leader, and that each replica can be polled."""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dashboard.models import ReplicaLook
from dashboard.tasks import polls as task
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import Offsets, PartitionVerdict, VerdictReason
from fenceline.plans.plan import Act
from fenceline.plans.plan import RefusalReason as PlanGround
from sandbox import SandboxError
from sandbox.cluster import KafkaCluster
from sandbox.scenes.paused import pause_process
from sandbox.scenes.wire import Identity
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.driven import only_cluster
from tests.kafka.planning_cluster import PlanningCluster, refusal_reasons, refusal_texts
from tests.kafka.producers import open_in
from tests.kafka.random_transactions import LONG_MS
from tests.kafka.raw_producers import RawProducer
from tests.kafka.stray_records import identity_of, verification_disabled, write_stray_records
from tests.seeds import SEED
from tests.waiting import wait_for
from transaction_admin.api import AdminUnavailable
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.django_db, pytest.mark.matrix]

OWNED = PartitionVerdict.OPEN, VerdictReason.OWNED
HANGING = PartitionVerdict.HANGING, VerdictReason.NOT_ITS_PARTITION
UNSEEN = PartitionVerdict.UNKNOWN, VerdictReason.UNSEEN


@pytest.fixture
def collected(kafka_three: KafkaCluster) -> Iterator[CollectedPartitions]:
    made = CollectedPartitions(kafka_three.bootstrap)
    yield made
    made.close()


@pytest.fixture
def topic(kafka_three: KafkaCluster, collected: CollectedPartitions) -> str:
    """A topic of three partitions, each with three replicas in sync and another leader."""
    name = f"three-{random.getrandbits(40):x}"
    client = AdminClient({"bootstrap.servers": kafka_three.bootstrap})
    replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    client.create_topics([NewTopic(name, 3, replica_assignment=replicas)])[name].result(60)
    wait_for(lambda: in_sync(collected, name) == [3, 3, 3], f"{name} is in sync", 60)
    return name


def in_sync(collected: CollectedPartitions, topic: str) -> list[int]:
    """How many replicas of each partition are in sync."""
    found = collected.watcher._reads.describe_topology([topic]).partitions
    return [len(found[each].in_sync) for each in sorted(found)]


def hang(
    cluster: KafkaCluster, collected: CollectedPartitions, name: str, topic: str, partition: int
) -> None:
    leader = (
        collected.watcher._reads.describe_topology([topic])
        .partitions[TopicPartition(topic, partition)]
        .leader
    )
    assert leader is not None
    given = identity_of(cluster.node(leader), name)
    with verification_disabled(cluster.node(leader)):
        write_stray_records(cluster.node(leader), name, given, (topic, partition))


class Truth:
    """What is true of a topic while brokers come and go: open in 0 and 1, hanging in 2."""

    def __init__(self, cluster: KafkaCluster, collected: CollectedPartitions, topic: str) -> None:
        self.collected, self.topic, self.dice = collected, topic, random.Random(SEED)
        open_in(cluster.bootstrap, topic, topic, 0, 1)
        hang(cluster, collected, f"{topic}-stray", topic, 2)
        collected.poll_repeatedly()
        assert self.verdicts() == self.expected
        self.clocks = self.first_seen()

    expected = ([OWNED], [OWNED], [HANGING])

    def verdicts(self) -> tuple[list[tuple[PartitionVerdict, VerdictReason]], ...]:
        """The verdicts on each partition."""
        return tuple([pin[1:] for pin in self.collected.verdicts(self.topic, number)] for number in range(3))  # type: ignore[misc]

    def first_seen(self) -> list[int]:
        """Since when each transaction is known."""
        return [self.collected.blockers(self.topic, number)[0].first_seen_ms for number in range(3)]

    def poll(self) -> bool:
        """Poll once; fail on any wrong verdict. Return whether everything is available and correct."""
        try:
            self.collected.poll(full=self.dice.random() < 0.5)
        except AdminUnavailable:
            return False
        for number, (said, expected) in enumerate(zip(self.verdicts(), self.expected, strict=True)):
            assert said in (expected, [UNSEEN]), f"{self.topic}-{number}: {said}"
            if said != expected:
                row = self.collected.row(self.topic, number)
                gaps = self.collected.gaps()
                assert f"partition:{self.topic}-{number}" in gaps or any("broker:" in each for each in gaps)
                assert row.verdict == "unknown"
        return self.verdicts() == self.expected and not self.collected.gaps()


@pytest.mark.soak
def test_a_rolling_restart_makes_no_wrong_verdict(
    kafka_three: KafkaCluster, collected: CollectedPartitions, topic: str
) -> None:
    truth = Truth(kafka_three, collected, topic)
    for broker in kafka_three.brokers:
        broker.stop()
        wait_for(truth.poll, f"all is seen without broker {broker.node_id}", 90)
        broker.start()
        kafka_three.wait_ready()
        wait_for(lambda: in_sync(collected, topic) == [3, 3, 3], "all replicas are in sync", 120)
        wait_for(truth.poll, f"all is seen with broker {broker.node_id} again", 60)
    assert truth.first_seen() == truth.clocks


def test_a_killed_broker_is_a_gap_and_no_finding(
    kafka_three: KafkaCluster, collected: CollectedPartitions, topic: str
) -> None:
    """Also of what only it has: one partition without another replica."""
    alone = f"{topic}-alone"
    client = AdminClient({"bootstrap.servers": kafka_three.bootstrap})
    client.create_topics([NewTopic(alone, 1, replica_assignment=[[2]])])[alone].result(60)
    wait_for(lambda: in_sync(collected, alone) == [1], f"{alone} has a leader", 60)
    open_in(kafka_three.bootstrap, alone, alone, 0)
    truth = Truth(kafka_three, collected, topic)
    assert collected.verdicts(alone) == [(alone, *OWNED)]
    kafka_three.node(2).kill()
    try:
        wait_for(lambda: truth.poll() or "broker:2" in collected.gaps(), "it is missed", 60)
        wait_for(
            lambda: not truth.poll() and truth.verdicts() == truth.expected, "the others have taken over", 90
        )
        wait_for(lambda: not truth.poll() and collected.row(alone).leader is None, "it leads nothing", 60)
        assert list(collected.gaps()) == ["broker:2"]
        assert collected.verdicts(alone) == [(alone, *UNSEEN)]
        row = collected.row(alone)
        assert (row.verdict, row.lso, row.high_watermark) == ("unknown", 0, 1)
        assert "no leader" in row.error
    finally:
        kafka_three.start()
        kafka_three.wait_ready()
    wait_for(truth.poll, "all is seen again", 90)
    wait_for(
        lambda: collected.poll() and collected.verdicts(alone) == [(alone, *OWNED)], "it is seen again", 60
    )
    assert truth.first_seen() == truth.clocks
    wait_for(lambda: in_sync(collected, topic) == [3, 3, 3], "all replicas are in sync", 120)


def test_coordinators_of_a_broker_that_is_back_are_asked_again(kafka_three: KafkaCluster) -> None:
    process = kafka_three.node(2).process
    assert process
    with closing(TransactionAdmin({"bootstrap.servers": kafka_three.bootstrap}, 3)) as admin:
        with pause_process(process.pid):
            wait_for(lambda: admin.list_transactions().unseen, "it does not answer", 60)
            wait_for(lambda: not admin.list_transactions().unseen, "the others have taken over", 90)
            # What the library does every five minutes: it forgets a broker that is away.
            admin._connection.run(admin._connection._manager.cluster.request_update)
        wait_for(lambda: len(brokers_of(kafka_three)) == 3, "it is back", 60)
        assert not admin.list_transactions().unseen


def brokers_of(cluster: KafkaCluster) -> Mapping[int, object]:
    return AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).brokers


def test_a_transaction_stuck_in_prepare_is_late_while_no_marker_may_be_written(
    kafka_three: KafkaCluster, collected: CollectedPartitions
) -> None:
    """The leader is running; but its partition has too few replicas in sync to take a marker.

    Two of the three brokers have the topic, so killing the one that does not lead leaves one of two. The
    clock is moved on: 15 s are the grace.
    """
    topic = f"three-{random.getrandbits(40):x}"
    client = AdminClient({"bootstrap.servers": kafka_three.bootstrap})
    created = NewTopic(topic, 1, replica_assignment=[[1, 3]], config={"min.insync.replicas": "2"})
    client.create_topics([created])[topic].result(60)
    wait_for(lambda: in_sync(collected, topic) == [2], f"{topic} is in sync", 60)
    open_in(kafka_three.bootstrap, topic, topic, 0)
    collected.poll_repeatedly(2)
    (pin,) = collected.blockers(topic)
    kafka_three.node(3).kill()
    try:
        wait_for(lambda: in_sync(collected, topic) == [1], "its follower is missed", 90)
        given = Identity(pin.producer_id, pin.producer_epoch)

        def decided() -> bool:
            # The coordinator may have been on the broker that is gone.
            try:
                RawProducer(kafka_three.node(1).bootstrap, topic, LONG_MS, given).commit()
            except SandboxError:
                return False
            return True

        wait_for(decided, "the commit is decided", 60)
        collected.poll_repeatedly(2)
        assert collected.verdicts(topic) == [(topic, *OWNED)]
        (seen,) = collected.blockers(topic)
        assert seen.prepared_ms is not None
        collected.poll(later_ms=30_000)
        assert collected.verdicts(topic) == [(topic, PartitionVerdict.LATE, VerdictReason.STUCK_IN_PREPARE)]
        assert collected.verdict(topic) is PartitionVerdict.LATE
        with closing(PlanningCluster(kafka_three.node(1))) as planner:
            for act, subject in (Act.FENCE, topic), (Act.ABORT_MARKER, f"{topic}-0"):
                found = planner.forced_plan(act, subject)
                assert refusal_reasons(found) == [[PlanGround.PREPARE]], "it gets neither"
                assert "has decided to commit it" in refusal_texts(found)
                assert f"the leader of {topic}-0" in refusal_texts(found)
            kafka_three.node(1).kill()
            planner.collected.properties = {"bootstrap.servers": kafka_three.node(2).bootstrap}
            found = planner.forced_plan(Act.ABORT_MARKER, f"{topic}-0")
            assert refusal_reasons(found) == [[PlanGround.NOT_SEEN]], refusal_texts(found)
    finally:
        kafka_three.start()
        kafka_three.wait_ready()
    wait_for(lambda: collected.poll() and not collected.blockers(topic), "the marker is written", 90)
    wait_for(
        lambda: collected.poll() and collected.verdict(topic) is PartitionVerdict.CLEAR, "it is released", 60
    )


@pytest.mark.soak
def test_offsets_are_correct_soon_after_a_leader_stops(
    kafka_three: KafkaCluster, collected: CollectedPartitions, topic: str
) -> None:
    """Never an LSO above the high watermark, and neither ever goes back, whoever leads."""
    producer = Producer({"bootstrap.servers": kafka_three.bootstrap, "acks": "all", "log_level": 0})
    where = TopicPartition(topic, 0)
    seen: list[Offsets] = []

    def poll_offsets() -> Offsets | None:
        producer.produce(topic, b"x", partition=0)
        producer.poll(0)
        try:
            found = collected.watcher._reads.list_offsets([where])[where]
        except AdminUnavailable:
            return None
        if isinstance(found, Offsets):
            seen.append(found)
            return found
        return None

    wait_for(poll_offsets, "it is seen")
    leader = seen[-1].leader
    kafka_three.node(leader).kill()
    try:
        wait_for(lambda: (found := poll_offsets()) and found.leader != leader, "another one leads", 60)
    finally:
        kafka_three.start()
        kafka_three.wait_ready()
    producer.flush(60)
    wait_for(lambda: in_sync(collected, topic) == [3, 3, 3], "all replicas are in sync", 120)
    assert all(each.lso <= each.high_watermark for each in seen)
    assert [each.high_watermark for each in seen] == sorted(each.high_watermark for each in seen)
    epochs = [each.leader_epoch or 0 for each in seen]
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]


def test_every_replica_reports_its_producers(
    kafka_three: KafkaCluster, collected: CollectedPartitions, topic: str
) -> None:
    open_in(kafka_three.bootstrap, topic, topic, 1)
    with only_cluster(collected.name, collected.properties):

        def replicated() -> bool:
            task.poll_replicas(collected.name, topic, 1)
            return all(look.producers for look in ReplicaLook.objects.all())

        wait_for(replicated, "the followers have it")
        looks = list(ReplicaLook.objects.order_by("broker"))
        assert [(look.broker, look.leads, look.error) for look in looks] == [
            (1, False, ""), (2, True, ""), (3, False, ""),
        ]  # fmt: skip
        for look in looks:
            (producer,) = look.producers
            assert (producer["start_offset"], producer["transactional_id"]) == (0, topic)
        kafka_three.node(3).kill()
        try:

            def missed() -> bool:
                task.poll_replicas(collected.name, topic, 1)
                return bool(ReplicaLook.objects.get(broker=3).error)

            wait_for(missed, "one is missed", 60)
            assert ReplicaLook.objects.get(broker=2).producers
        finally:
            kafka_three.start()
            kafka_three.wait_ready()
    wait_for(lambda: in_sync(collected, topic) == [3, 3, 3], "all replicas are in sync", 120)


def test_a_paused_leader_is_waited_for_only_until_the_cluster_misses_it(
    kafka_three: KafkaCluster, topic: str
) -> None:
    """A request may take a minute here; the cluster misses a broker after nine seconds."""
    where = TopicPartition(topic, 0)
    with closing(ClusterReads({"bootstrap.servers": kafka_three.bootstrap}, timeout_s=60)) as reads:
        led_by = reads.describe_topology([topic]).partitions[where].leader
        assert isinstance(reads.list_offsets([where])[where], Offsets)
        assert led_by is not None
        process = kafka_three.node(led_by).process
        assert process is not None
        began = time.monotonic()
        with pause_process(process.pid):
            assert isinstance(reads.list_offsets([where])[where], Offsets), "another leader answers"
        assert time.monotonic() - began < 30
        assert reads.describe_topology([topic]).partitions[where].leader != led_by
    kafka_three.wait_ready()
