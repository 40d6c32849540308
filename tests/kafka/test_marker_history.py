"""Proves that lists and control batches name what became of transactions where the log cannot be read.

The truth is what clients of both protocol versions did; the topic is refused to the tail alone.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event

import pytest
from confluent_kafka import KafkaException
from py4j.java_gateway import JavaGateway

from dashboard.models import Transaction, TransitionRecord
from dashboard.runtime import collector_store, loop
from fenceline.facts import ABORTS, NOT_FROM_LOG, Confidence, Transition, TransitionKind
from fenceline.kafka.fold import transition_ring
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaError, JavaProducer
from tests.kafka.producers import LONG, LibrdkafkaProducer, TransactionalProducer
from tests.kafka.test_reconcile import Stack

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

#: By transactional id: ends by their places.
Ends = defaultdict[str, dict[int, Transition]]
#: What is open for so long is seen; in seconds.
SEEN_S = 2.0


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
