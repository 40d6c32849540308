"""Proves on real brokers what a commit has lost to an abort marker from outside, or to a deleted topic.

The markers are Java's `Admin.abortTransaction`. The oracle is a plain read_committed consumer: it lacks the
records that are reported as lost, and no others.
"""

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest
from py4j.java_gateway import JavaGateway

from dashboard.models import AbortedCommit, PinRecord, Transaction
from dashboard.recoveries.commit_watch import read_aborted_commits
from dashboard.runtime import loop
from dashboard.tasks import recoveries as task
from fenceline.limits import Limits
from fenceline.losses.recoveries import DELETED, LostRecords
from fenceline.rules import RULES
from fenceline.snapshot import Snapshot
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin, JavaProducer
from tests.kafka.cluster_inspector import DEADLINE_S, ClusterInspector
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.driven import only_cluster
from tests.kafka.group_commits import delete_topic
from tests.kafka.producers import LONG, LibrdkafkaProducer, TransactionalProducer, open_in
from tests.kafka.topic_records import record_offsets
from tests.kafka.transactional_ids import initialise_ids
from tests.seeds import SEED
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]
Make = Callable[[str], TransactionalProducer]


class Inspector(ClusterInspector):
    """The same collectors, and what is known of one transaction."""

    def transaction(self, name: str) -> Transaction:
        def found() -> Transaction | None:
            self.poll()
            return Transaction.objects.filter(transactional_id=name, state="Ongoing").first()

        row = wait_for(found, f"{name} is seen open", DEADLINE_S)
        assert row is not None
        return row

    def wait_until_checked(self, *names: str) -> None:
        """Poll until nothing is open any more, and every commit is searched."""

        def is_checked() -> bool:
            self.poll()
            is_open = Transaction.objects.filter(transactional_id__in=names, state="Ongoing").exists()
            watch = task.watches[self.collected.name]
            # Other files of this worker may have left transactions open on the same broker.
            mine = any(each.transactional_id in names for each in watch._watched.values())
            return not (is_open or mine or watch.suspected or watch.others)

        wait_for(is_checked, "every commit is searched", DEADLINE_S)

    def wait_until_blocked(self, *topics: str) -> None:
        def is_blocked() -> bool:
            self.poll()
            return set(topics) <= set(PinRecord.objects.values_list("topic", flat=True))

        wait_for(is_blocked, "it is seen to block readers", DEADLINE_S)


@pytest.fixture
def collectors(kafka: Broker) -> Iterator[Inspector]:
    # A tail waits for the first id of a broker.
    initialise_ids(kafka.bootstrap, ["first-of-all"])
    collected = CollectedPartitions(kafka.bootstrap)
    with only_cluster(collected.name, collected.properties):
        made = Inspector(collected)
        made.poll()
        yield made
        task._reads.discard(collected.name)
        task.watches.pop(collected.name, None)
    collected.close()


@pytest.fixture
def topic(kafka: Broker) -> str:
    name = f"undercut-{uuid.uuid4().hex[:8]}"
    create_topics(kafka.bootstrap, name, f"{name}-other", partitions=2)
    return name


@pytest.fixture
def admin(kafka: Broker, java: JavaGateway) -> Iterator[JavaAdmin]:
    with JavaAdmin(java, kafka.bootstrap) as made:
        yield made


@pytest.fixture(params=["librdkafka", pytest.param("java", marks=pytest.mark.matrix)])
def make(request: pytest.FixtureRequest, kafka: Broker, java: JavaGateway) -> Make:
    return maker(request.param, kafka, java)


def maker(library: str, broker: Broker, java: JavaGateway) -> Make:
    def make(name: str) -> TransactionalProducer:
        made: TransactionalProducer = (
            LibrdkafkaProducer(broker.bootstrap, name, LONG)
            if library == "librdkafka"
            else JavaProducer(java, broker.bootstrap, name, LONG)
        )
        made.init()
        made.begin()
        return made

    return make


def send(producer: TransactionalProducer, topic: str, value: str, records: int, partition: int = 0) -> None:
    for _ in range(records):
        producer.send(topic, partition, value)
    producer.flush()


def invisible(broker: Broker, topic: str, value: str, partition: int = 0) -> list[int]:
    """Return the offsets of a value that no read_committed consumer gets."""
    seen = record_offsets(broker, topic, value, committed=True, partition=partition)
    return sorted({*record_offsets(broker, topic, value, committed=False, partition=partition)} - {*seen})


def reported() -> dict[str, list[LostRecords]]:
    rows = AbortedCommit.objects.all()
    return {row.transactional_id: [LostRecords(*each) for each in row.lost] for row in rows}


def test_a_commit_after_a_marker_reports_the_lost_offsets(
    kafka: Broker, collectors: Inspector, topic: str, admin: JavaAdmin, make: Make
) -> None:
    noise = make(f"{topic}-noise")
    producer = make(topic)
    send(producer, topic, "x", 2)
    send(noise, topic, "noise", 2)
    send(producer, topic, "x", 3)
    send(producer, topic, "x", 2, partition=1)
    row = collectors.transaction(topic)
    collectors.wait_until_blocked(topic)
    admin.abort_transaction(topic, 0, row.producer_id)
    send(producer, topic, "x", 4)
    collectors.poll()
    producer.commit()
    noise.commit()
    collectors.wait_until_checked(topic, f"{topic}-noise")
    expected = invisible(kafka, topic, "x")
    assert len(expected) == 5
    (lost,) = reported()[topic]
    assert lost[:6] == (topic, 0, expected[0], expected[-1], 5, True)
    assert list(reported()) == [topic], "the other transaction, and the other partition, lost nothing"
    facts = tuple(read_aborted_commits(row.cluster_id, loop.now_ms()))
    (finding,) = RULES["aborted_under_commit"].check(
        Snapshot("prod", aborted_commits=facts), now_ms=loop.now_ms(), limits=Limits()
    )
    assert finding.summary == f"{topic}: aborted by a marker before the commit, 5 records lost"
    assert f"{topic}-0: 5 records, offsets {expected[0]} to {expected[-1]}" in finding.evidence
    assert finding.instance == f"{row.producer_id}@{row.started_ms}"


def test_an_abort_after_a_marker_loses_no_more_than_it_says(
    collectors: Inspector, topic: str, admin: JavaAdmin, make: Make
) -> None:
    producer = make(topic)
    send(producer, topic, "x", 3)
    row = collectors.transaction(topic)
    collectors.wait_until_blocked(topic)
    admin.abort_transaction(topic, 0, row.producer_id)
    collectors.poll()
    producer.abort()
    collectors.wait_until_checked(topic)
    assert reported() == {}


def test_a_marker_before_any_record_of_the_transaction_loses_nothing(
    kafka: Broker, collectors: Inspector, topic: str, admin: JavaAdmin, make: Make
) -> None:
    producer = make(topic)
    send(producer, topic, "earlier", 2, partition=1)
    producer.commit()
    producer.begin()
    send(producer, topic, "x", 3)
    row = collectors.transaction(topic)
    collectors.wait_until_blocked(topic)
    admin.abort_transaction(topic, 1, row.producer_id)
    send(producer, topic, "x", 2, partition=1)
    collectors.poll()
    producer.commit()
    collectors.wait_until_checked(topic)
    assert invisible(kafka, topic, "x", 1) == invisible(kafka, topic, "earlier", 1) == []
    assert reported() == {}


def test_own_aborts_before_a_commit_are_no_loss_of_it(collectors: Inspector, topic: str, make: Make) -> None:
    producer = make(topic)
    for _ in range(3):
        send(producer, topic, "x", 2)
        producer.abort()
        producer.begin()
    send(producer, topic, "x", 2)
    collectors.transaction(topic)
    producer.commit()
    collectors.wait_until_checked(topic)
    assert reported() == {}


def test_a_topic_deleted_while_open_is_reported_with_its_bounds(
    kafka: Broker, collectors: Inspector, topic: str
) -> None:
    producer = open_in(kafka.bootstrap, topic)
    send(producer, topic, "x", 3)
    send(producer, f"{topic}-other", "x", 2)
    collectors.transaction(topic)
    collectors.wait_until_blocked(topic, f"{topic}-other")
    delete_topic(kafka.bootstrap, topic)
    watch = task.watches[collectors.collected.name]

    def is_noted() -> bool:
        collectors.poll()
        return any(each.deleted for each in watch._watched.values())

    wait_for(is_noted, "the topic is known to be gone", DEADLINE_S)
    producer.commit()
    collectors.wait_until_checked(topic)
    (lost,) = reported()[topic]
    assert lost == LostRecords(topic, 0, 0, 2, None, False, DELETED, deleted=True)


def test_a_topic_deleted_after_the_commit_is_no_loss(
    kafka: Broker, collectors: Inspector, topic: str
) -> None:
    producer = open_in(kafka.bootstrap, topic)
    send(producer, topic, "x", 3)
    collectors.transaction(topic)
    collectors.wait_until_blocked(topic)
    producer.commit()
    delete_topic(kafka.bootstrap, topic)
    collectors.wait_until_checked(topic)
    assert reported() == {}


class RandomTry(NamedTuple):
    """A transaction of a random history, its producer, and what it does."""

    name: str
    producer: TransactionalProducer
    steps: list[str]
    written: set[int]

    def __str__(self) -> str:
        return f"{self.name} of {type(self.producer).__name__}: {self.steps}"


def random_try(rng: random.Random, make: Make, topic: str, number: int) -> RandomTry:
    """Begin a transaction of an id with earlier ones; it writes and is marked in any order, then ends."""
    name = f"{topic}-{number}"
    producer = make(name)
    for _ in range(rng.randint(0, 2)):
        send(producer, topic, "earlier", 2, partition=rng.randint(0, 1))
        rng.choice([producer.commit, producer.abort])()
        producer.begin()
    kinds = ["write 0", "write 1", "mark 0", "mark 1", "poll"]
    steps = rng.choices(kinds, (4, 3, 2, 1, 2), k=rng.randint(3, 9))
    return RandomTry(name, producer, ["write 0", *steps, rng.choice(["commit", "commit", "abort"])], set())


@pytest.mark.soak
def test_random_markers_are_reported_exactly(
    kafka: Broker, collectors: Inspector, topic: str, admin: JavaAdmin, java: JavaGateway
) -> None:
    print(f"FENCELINE_SEED={SEED}")
    rng = random.Random(SEED)
    makes = [maker(each, kafka, java) for each in ("librdkafka", "java")]
    losses = 0
    for number in range(0, 50, 5):
        tries = [random_try(rng, rng.choice(makes), topic, number + n) for n in range(5)]
        play(rng, collectors, admin, topic, tries)
        collectors.wait_until_checked(*(each.name for each in tries))
        for each in tries:
            expected = expected_losses(kafka, topic, each)
            found = reported().get(each.name, ())
            told = {lost.partition: (lost.first, lost.last, lost.records) for lost in found}
            assert told == expected, f"FENCELINE_SEED={SEED}, {each}"
            losses += bool(told)
    print(f"{losses} of 50 commits lost records")


def expected_losses(broker: Broker, topic: str, each: RandomTry) -> dict[int, tuple[int, int, int]]:
    """By partition: first and last offset, and number, of records that no consumer gets after a commit."""
    if each.steps[-1] == "abort":
        return {}
    lost = {number: invisible(broker, topic, each.name, number) for number in (0, 1)}
    return {number: (some[0], some[-1], len(some)) for number, some in lost.items() if some}


def play(
    rng: random.Random, collectors: Inspector, admin: JavaAdmin, topic: str, tries: Sequence[RandomTry]
) -> None:
    """Play the steps of some transactions, interleaved. Polls are real ones of all collectors."""
    order = [number for number, each in enumerate(tries) for _ in each.steps]
    rng.shuffle(order)
    left = [iter(each.steps) for each in tries]
    for number in order:
        play_step(collectors, admin, topic, tries[number], next(left[number]))


def play_step(collectors: Inspector, admin: JavaAdmin, topic: str, attempt: RandomTry, step: str) -> None:
    what, _, number = step.partition(" ")
    if what == "write":
        send(attempt.producer, topic, attempt.name, 2, partition=int(number))
        attempt.written.add(int(number))
    elif what == "mark" and int(number) in attempt.written:
        admin.abort_transaction(topic, int(number), collectors.transaction(attempt.name).producer_id)
    elif what == "poll":
        collectors.poll()
    elif what == "commit":
        attempt.producer.commit()
    elif what == "abort":
        attempt.producer.abort()
