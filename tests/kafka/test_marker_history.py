"""Proves what markers tell of transactions: markers in topics and the coordinators' log agree on every end,
as two witnesses do; and lists and control batches name what became of transactions where the log cannot be
read. The truth is what clients of both protocol versions did; the topic is refused to the tail alone."""

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event

import pytest
from confluent_kafka import KafkaException
from py4j.java_gateway import JavaGateway

from collectors.kafka.internal_topics import Tail
from collectors.kafka.markers import MarkerTail
from dashboard.models import Transaction, TransitionRecord
from dashboard.runtime import collector_store, loop
from fenceline.decode.transaction_state import decode_key, decode_value
from fenceline.facts import (
    ABORTS,
    NOT_FROM_LOG,
    Confidence,
    Records,
    TopicPartition,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
)
from fenceline.kafka.fold import transition_ring
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin, JavaError, JavaProducer
from tests.kafka.producers import LONG, LibrdkafkaProducer, TransactionalProducer
from tests.kafka.random_transactions import ClientCluster, run_clients
from tests.kafka.test_reconcile import Stack
from tests.kafka.transactional_ids import initialise_ids
from tests.waiting import wait_for
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]
#: By transactional id: ends by their places.
Ends = defaultdict[str, dict[int, Transition]]
#: What is open for so long is seen; in seconds.
SEEN_S = 2.0
#: An end in one partition: where, producer id and epoch, and whether it is a commit.
MarkedEnd = tuple[TopicPartition, int, int, bool]
_DECIDED = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}


@dataclass(frozen=True)
class TrueTransaction:
    """What a client did."""

    transactional_id: str
    began_ms: int
    ended_ms: int
    #: commit, abort or takeover.
    end: str


@dataclass
class KnownClient:
    """One transactional id, driven by one library, and what it did."""

    bootstrap: str
    topic: str
    transactional_id: str
    gateway: JavaGateway | None
    did: list[TrueTransaction] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Run transactions of random length with random ends."""
        dice, until = random.Random(self.transactional_id), time.monotonic() + seconds
        producer = self._start()
        while time.monotonic() < until:
            began_ms = loop.now_ms()
            producer.begin()
            for number in range(dice.randint(1, 3)):
                producer.send(self.topic, number)
            producer.flush()
            Event().wait(dice.choice((0.02, 0.3, 1.0, 2.2, 2.6, 3.0)))
            end = dice.choice(("commit", "commit", "abort", "takeover"))
            producer = self._end(producer, end)
            self.did.append(TrueTransaction(self.transactional_id, began_ms, loop.now_ms(), end))
            Event().wait(dice.choice((0.0, 0.0, 0.5, 1.5)))
        producer.abandon()

    def may_be(self, end: Transition) -> bool:
        """Whether nothing certain is said of a transaction that was not so."""
        return end.confidence is not Confidence.CERTAIN or any(is_named(true, end) for true in self.did)

    def _end(self, producer: TransactionalProducer, end: str) -> TransactionalProducer:
        if end == "commit":
            producer.commit()
        elif end == "abort":
            producer.abort()
        else:
            zombie, producer = producer, self._start()
            with suppress(JavaError, KafkaException):
                zombie.abandon()
        return producer

    def _start(self) -> TransactionalProducer:
        where = self.bootstrap, self.transactional_id, LONG
        producer = JavaProducer(self.gateway, *where) if self.gateway else LibrdkafkaProducer(*where)
        producer.init()
        return producer


@pytest.fixture
def blind(kafka: Broker) -> Iterator[Stack]:
    """A stack whose tail may not read the log."""
    made = Stack(kafka.bootstrap)
    reason = "no READ on __transaction_state at here; grant it"
    collector_store.save_trouble(made.tail, reason, now_ms=loop.now_ms())
    yield made
    made.reconciler.close()


def test_transactions_of_two_seconds_are_named_with_their_ends(
    kafka: Broker, java: JavaGateway, blind: Stack
) -> None:
    topic = f"markers-{blind.name}"
    create_topics(kafka.bootstrap, topic)
    clients = [
        KnownClient(kafka.bootstrap, topic, f"{topic}-{number}", java if number % 2 else None)
        for number in range(9)
    ]
    found: Ends = defaultdict(dict)
    blind.poll(full=True)
    with ThreadPoolExecutor(len(clients)) as pool:
        running = [pool.submit(client.run, 8.0) for client in clients]
        while not all(each.done() for each in running):
            assert blind.poll_when_due().alone
            gather(found)
        for each in running:
            each.result()
    for _ in range(2):
        blind.poll_when_due()
        gather(found)
    did = [(true, found[true.transactional_id].values()) for client in clients for true in client.did]
    long = [(true, ends) for true, ends in did if true.ended_ms - true.began_ms >= SEEN_S * 1_000]
    missed = [(true, ends) for true, ends in long if not any(is_named(true, end) for end in ends)]
    assert len(long) >= 12
    assert len(missed) <= len(long) // 10, missed
    told = ((client, end) for client in clients for end in found[client.transactional_id].values())
    wrong = [end for client, end in told if not client.may_be(end)]
    assert wrong == []
    # What has rows of its own is there too, and the tail's place in the log stays free.
    kinds = set(TransitionRecord.objects.values_list("kind", "log_partition"))
    assert {kind for kind, _ in kinds} & ABORTS
    assert {place for _, place in kinds} == {NOT_FROM_LOG}


def gather(found: Ends) -> None:
    """Take in the ends that are kept now: of an id the last 20 transitions are."""
    names = {
        bytes(row.key): row.transactional_id for row in Transaction.objects.only("key", "transactional_id")
    }
    for key, packed in Transaction.objects.values_list("key", "recent"):
        for each in transition_ring.unpack_ring(bytes(packed), NOT_FROM_LOG):
            if each.kind is TransitionKind.COMMIT or each.kind in ABORTS:
                found[names[bytes(key)]][each.offset] = each


def is_named(true: TrueTransaction, end: Transition) -> bool:
    """Whether a transition is the end of this transaction, by its kind and times."""
    if (end.kind is TransitionKind.COMMIT) is not (true.end == "commit") or end.open_ms is None:
        return False
    began_ms = end.at_ms - end.open_ms
    begins = true.began_ms - 100 <= began_ms <= true.began_ms + 1_000
    return begins and end.at_ms <= true.ended_ms + 1_500


class Witnesses:
    """The ends in some topics by the log and by their markers, each as often as it was written."""

    def __init__(self, bootstrap: str, topics: tuple[str, ...]) -> None:
        properties = {"bootstrap.servers": bootstrap}
        self._partitions = [TopicPartition(topic, number) for topic in topics for number in range(3)]
        self._tail = Tail(properties)
        self._markers = MarkerTail(ClusterReads(properties), megabytes=1_000)
        self._tail.seek("", {})
        self._markers.follow(self._partitions)
        self.by_log: Counter[MarkedEnd] = Counter()
        self.by_markers: Counter[MarkedEnd] = Counter()

    def close(self) -> None:
        """Close the connections."""
        self._tail.close()
        self._markers.close()

    def read(self) -> int:
        """Read on from both; return how many ends were found."""
        before = self.by_log.total() + self.by_markers.total()
        batch = self._tail.poll(0.1)
        for records in batch.records.values():
            self.by_log.update(end for end in ends_in_log(records) if end[0] in self._partitions)
        self._tail.mark_saved(batch)
        self._markers.follow(self._partitions)
        for markers in self._markers.read().values():
            self.by_markers.update(
                (marker.where, marker.producer_id, marker.producer_epoch, marker.is_commit)
                for marker in markers
            )
        assert self._markers.blind == {}
        return self.by_log.total() + self.by_markers.total() - before


def ends_in_log(records: Records) -> Iterator[MarkedEnd]:
    """Yield the decisions in records of the log, one for each partition."""
    for key, raws in records.items():
        for raw in raws:
            record = raw.value and decode_value(str(decode_key(key)), raw.value)
            if isinstance(record, TransactionRecord) and record.state in _DECIDED:
                for topic, numbers in record.partitions or ():
                    for number in numbers:
                        where = TopicPartition(topic, number)
                        yield where, record.producer_id, record.producer_epoch, _DECIDED[record.state]


@pytest.mark.parametrize("transactions", [400, pytest.param(100_000, marks=pytest.mark.soak)])
def test_markers_and_log_agree_on_every_end(kafka: Broker, java: JavaGateway, transactions: int) -> None:
    seed = int(os.environ.get("FENCELINE_SEED", random.getrandbits(24)))
    print(f"seed {seed}")
    topics = tuple(f"witness-{seed}-{number}" for number in range(3))
    create_topics(kafka.bootstrap, *topics)
    ids = [f"witness-{seed}-{number}" for number in range(max(16, transactions // 500))]
    initialise_ids(kafka.bootstrap, ids[:1])  # So that the log exists.
    witnesses = Witnesses(kafka.bootstrap, topics)
    with JavaAdmin(java, kafka.bootstrap) as admin, ThreadPoolExecutor(1) as pool:
        cluster = ClientCluster(kafka.bootstrap, java, admin, topics)
        running = pool.submit(run_clients, cluster, ids, transactions, seed)
        while not running.done():
            witnesses.read()
        outcomes: Mapping[str, int] = running.result()
    wait_for(
        lambda: not witnesses.read() and witnesses.by_log == witnesses.by_markers, "both witnesses agree"
    )
    witnesses.close()
    assert sum(outcomes.values()) >= transactions
    assert len({end[1:3] for end in witnesses.by_log}) > len(ids)
