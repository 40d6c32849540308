"""Scripted random transactions whose outcomes are known.

Each client logs what truly happens to its transactional id as expected records: one for every record that its
coordinator must write, but for Complete* and for further partitions of an open transaction. So truth and
log are compared record by record, and a record that is not in the truth fails the comparison itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaException

from fenceline.facts import TransactionState, TransitionKind
from fenceline.kafka.transitions import ADMIN_TIMEOUT_MS
from sandbox.scenes.wire import CoordinatorRefused
from tests.java.clients import JavaError, JavaProducer
from tests.kafka.killed_producer import kill_in_mid_transaction
from tests.kafka.producers import TransactionalProducer, wait_until_refused
from tests.kafka.random_transactions import LONG_MS, SHORT_MS, ClientCluster, RandomClient
from tests.kafka.raw_producers import RawProducer, RawProducer2
from tests.waiting import wait_for

#: The topic that takes no record of more than `max.message.bytes` = 2000.
NARROW = "outcomes-narrow"
TOO_LARGE = "x" * 5_000


class ExpectedRecord(NamedTuple):
    """What one record truly is: its state, the kind that it makes, and the outcome that it belongs to."""

    state: TransactionState
    #: None where the record only completes what the one before has begun: the Empty of a takeover.
    kind: TransitionKind | None
    outcome: str
    #: Of the producer that the record is about: "2", or "0/1".
    protocol: str


@dataclass
class LoggedClient(RandomClient):
    """A client that logs the records that its coordinator must write.

    `java_uses_protocol_2`: Java and this broker use protocol 2; `recovers`: the broker lets a
    producer raise its own epoch while its transaction is open, and abort what the coordinator has aborted
    (4.0.0 raises the epoch by two then, and fences it).
    """

    java_uses_protocol_2: bool = True
    recovers: bool = True
    marks: list[ExpectedRecord] = field(default_factory=list)
    outcome: str = "birth"

    def play_all(self, outcomes: Iterable[Callable[[LoggedClient], None]]) -> list[ExpectedRecord]:
        """Run transactions with these outcomes; return the log."""
        self.producer = self.start()
        self.mark(TransactionState.EMPTY, TransitionKind.INIT)
        for outcome in outcomes:
            self.outcome = outcome.__name__
            outcome(self)
        self.producer.abandon()
        return self.marks

    @property
    def protocol(self) -> str:
        """The transaction protocol of the current producer."""
        speaks = isinstance(self.producer, JavaProducer | RawProducer2)
        return "2" if self.java_uses_protocol_2 and speaks else "0/1"

    def mark(self, state: TransactionState, kind: TransitionKind | None, protocol: str = "") -> None:
        """Log a record."""
        self.marks.append(ExpectedRecord(state, kind, self.outcome, protocol or self.protocol))

    def continue_with(self, producer: TransactionalProducer) -> None:
        """Initialise a producer while nothing is open; the one before is gone."""
        producer.init()
        self.mark(TransactionState.EMPTY, TransitionKind.REINIT)
        self.producer = producer

    def again(self, timeout_ms: int = LONG_MS) -> None:
        """The producer is gone, and another one comes while nothing is open."""
        self.producer.abandon()
        self.continue_with(self.make(timeout_ms))

    def opened(self) -> None:
        """Open a transaction."""
        self.open()
        self.mark(TransactionState.ONGOING, TransitionKind.BEGIN)

    def aborted_for(self, kind: TransitionKind, protocol: str = "") -> None:
        """The coordinator aborted what was open, and wrote what it gave to whoever asked for that."""
        self.mark(TransactionState.PREPARE_ABORT, kind, protocol)
        self.mark(TransactionState.EMPTY, None, protocol)

    def wait_until(self, state: str) -> None:
        """Wait until the coordinator has the id in this state."""
        wait_for(lambda: self.state() == state, f"{self.transactional_id} is {state}")


def commit(client: LoggedClient) -> None:
    """The usual end."""
    client.opened()
    client.producer.commit()
    client.mark(TransactionState.PREPARE_COMMIT, TransitionKind.COMMIT)


def abort(client: LoggedClient) -> None:
    """The client's own abort."""
    client.opened()
    client.producer.abort()
    client.mark(TransactionState.PREPARE_ABORT, TransitionKind.CLIENT_ABORT)


def empty(client: LoggedClient) -> None:
    """A transaction without a record, which leaves none either."""
    client.producer.begin()
    client.producer.commit()


def empty_abort(client: LoggedClient) -> None:
    """A client of protocol 2 aborts before a record has left; without it the coordinator gets no request.

    Spoken raw: Java's sender may get the record out in the very moment of the abort.
    """
    if not client.java_uses_protocol_2:
        client.producer.begin()
        client.producer.abort()
        return
    client.producer.abandon()
    raw = RawProducer(client.cluster.bootstrap, client.transactional_id, LONG_MS)
    client.continue_with(raw)
    raw.abort_nothing()
    client.mark(TransactionState.PREPARE_ABORT, TransitionKind.EMPTY_ABORT, "2")
    client.again()


def reinit(client: LoggedClient) -> None:
    """A producer ends its transaction either way, and at once another one comes."""
    client.dice.choice((commit, abort))(client)
    client.again()


def takeover(client: LoggedClient) -> None:
    """Another producer initialises while a transaction is open; sometimes the first one tries to continue."""
    client.opened()
    zombie, producer = client.producer, client.make()
    producer.init()
    client.aborted_for(TransitionKind.TAKEOVER)
    if client.dice.random() < 0.5:
        with suppress(JavaError, KafkaException):
            zombie.commit()
            raise AssertionError(f"{client.transactional_id}: a zombie could commit")
    zombie.abandon()
    client.producer = producer


def takeover_and_gone(client: LoggedClient) -> None:
    """Another client initialises once while a transaction is open; a producer comes after it has ended."""
    client.opened()
    end_by_stranger(client)
    client.again()


def end_by_stranger(client: LoggedClient) -> None:
    """Another client initialises once, and never asks again."""
    stranger = RawProducer(client.cluster.bootstrap, client.transactional_id)
    with suppress(CoordinatorRefused):
        stranger.init_once()
        raise AssertionError(f"{client.transactional_id}: initialised while a transaction was open")
    stranger.abandon()
    client.wait_until("CompleteAbort")
    client.mark(TransactionState.PREPARE_ABORT, TransitionKind.TAKEOVER)


def kill(client: LoggedClient) -> None:
    """A process is killed in mid-transaction, and another instance comes."""
    client.producer.abandon()
    kill_in_mid_transaction(
        client.cluster.bootstrap, client.transactional_id, client.cluster.topics[0], LONG_MS
    )
    client.mark(TransactionState.EMPTY, TransitionKind.REINIT)
    client.producer = client.start()
    # The victim was librdkafka's, whatever comes after it.
    client.mark(TransactionState.ONGOING, TransitionKind.BEGIN, "0/1")
    client.aborted_for(TransitionKind.TAKEOVER, "0/1")


def timeout(client: LoggedClient) -> None:
    """A producer hangs with a transaction open, the coordinator ends it, and another producer comes."""
    client.again(SHORT_MS)
    # On a busy machine the coordinator may be there before the last record is.
    with suppress(JavaError, KafkaException):
        client.open()
    client.wait_until("CompleteAbort")
    client.mark(TransactionState.ONGOING, TransitionKind.BEGIN)
    client.mark(TransactionState.PREPARE_ABORT, TransitionKind.TIMEOUT)
    client.again()


def fence(client: LoggedClient) -> None:
    """Admin.fenceProducers in mid-transaction; later another producer comes."""
    client.opened()
    client.cluster.admin.fence_producers([client.transactional_id])
    client.aborted_for(TransitionKind.ADMIN_FENCE)
    client.again()


def fence_idle(client: LoggedClient) -> None:
    """Admin.fenceProducers while nothing is open; later another producer comes."""
    client.cluster.admin.fence_producers([client.transactional_id])
    client.mark(TransactionState.EMPTY, TransitionKind.ADMIN_FENCE)
    client.again()


def recovery(client: LoggedClient) -> None:
    """A record is refused, and the client aborts; Java without protocol 2 then raises its epoch (KIP-360)."""
    client.opened()
    client.producer.send(NARROW, 0, TOO_LARGE)
    wait_until_refused(client.producer, client.cluster.topics[0])
    client.producer.abort()
    client.mark(TransactionState.PREPARE_ABORT, TransitionKind.CLIENT_ABORT)
    if isinstance(client.producer, JavaProducer) and client.protocol != "2":
        client.wait_until("Empty")
        client.mark(TransactionState.EMPTY, TransitionKind.REINIT)


def self_recovery(client: LoggedClient) -> None:
    """A producer raises its own epoch while its transaction is open (KIP-360), and continues.

    No library does so any more, and Kafka 3.9 and 4.0.0 refuse: there it is a recovery.
    """
    if not client.recovers:
        recovery(client)
        return
    client.producer.abandon()
    raw = RawProducer(client.cluster.bootstrap, client.transactional_id, LONG_MS)
    client.continue_with(raw)
    client.opened()
    raw.recover()
    client.aborted_for(TransitionKind.SELF_RECOVERY)
    commit(client)
    client.again()


def use_protocol_2(client: LoggedClient, timeout_ms: int = LONG_MS) -> bool:
    """Continue with a producer of transaction version 2, Java's or as quick as franz-go, where brokers do."""
    client.producer.abandon()
    if not client.java_uses_protocol_2:
        client.continue_with(client.make(timeout_ms))
        return False
    where = client.cluster.bootstrap, client.transactional_id
    settings = {"transaction.timeout.ms": str(timeout_ms), "linger.ms": "0"}
    java = client.dice.random() < 0.5
    client.continue_with(
        JavaProducer(client.cluster.gateway, *where, settings) if java else RawProducer2(*where, timeout_ms)
    )
    return True


def open_one(client: LoggedClient) -> None:
    """Open a transaction by one record."""
    client.mark(TransactionState.ONGOING, TransitionKind.BEGIN)
    client.producer.begin()
    client.producer.send(client.cluster.topics[0], client.dice.randrange(3))
    client.producer.flush()


def late_abort(client: LoggedClient) -> None:
    """A producer of version 2 aborts after the coordinator has, is answered with success, and continues.

    Its next transaction times out, too: on a busy machine that cannot be avoided.
    """
    protocol_2 = use_protocol_2(client, SHORT_MS)
    time_out(client)
    if protocol_2 and client.recovers:
        client.producer.abort()
        time_out(client)
    client.again()


def time_out(client: LoggedClient) -> None:
    """Open a transaction, and wait until the coordinator has aborted it."""
    # On a busy machine the coordinator may be there before the answer is.
    with suppress(JavaError, KafkaException, CoordinatorRefused):
        open_one(client)
    client.wait_until("CompleteAbort")
    client.mark(TransactionState.PREPARE_ABORT, TransitionKind.TIMEOUT)


def foreign_init(client: LoggedClient) -> None:
    """Another client initialises once in mid-transaction; a producer of version 2 then aborts, and
    continues.
    """
    protocol_2 = use_protocol_2(client)
    open_one(client)
    end_by_stranger(client)
    if protocol_2 and client.recovers:
        client.producer.abort()
        open_one(client)
        client.producer.commit()
        client.mark(TransactionState.PREPARE_COMMIT, TransitionKind.COMMIT)
    client.again()


def quick_takeover(client: LoggedClient) -> None:
    """A takeover by a client that retries as soon as franz-go does."""
    protocol_2 = use_protocol_2(client)
    open_one(client)
    rival = (RawProducer2 if protocol_2 else RawProducer)(client.cluster.bootstrap, client.transactional_id)
    rival.init_as_franz_go()
    client.aborted_for(TransitionKind.TAKEOVER)
    client.producer.abandon()
    client.producer = rival
    client.again()


def restarts(client: LoggedClient) -> None:
    """A producer aborts, closes and starts again several times: Java's, librdkafka's, or as quick as
    franz-go.
    """
    for _ in range(client.dice.randint(2, 5)):
        client.dice.choice((client.again, partial(use_protocol_2, client)))()
        open_one(client)
        client.producer.abort()
        client.mark(TransactionState.PREPARE_ABORT, TransitionKind.CLIENT_ABORT)
    client.again()


def fence_with_own_timeout(client: LoggedClient) -> None:
    """Admin.fenceProducers with a timeout of its own, in mid-transaction or not; later a producer comes."""
    is_open = client.dice.random() < 0.7
    if is_open:
        client.opened()
    timeout_ms = client.dice.choice((20_000, 45_000, LONG_MS))
    client.cluster.admin.fence_producers([client.transactional_id], timeout_ms)
    if is_open:
        client.aborted_for(TransitionKind.ADMIN_FENCE)
    else:
        # That is an initialisation by whomever.
        client.mark(TransactionState.EMPTY, TransitionKind.REINIT)
    client.again()


def waits_with_30_s(client: LoggedClient) -> None:
    """A producer whose timeout is 30 s, as an Admin's, initialises and waits for work; another one comes."""
    if client.dice.random() < 0.5:
        client.again(ADMIN_TIMEOUT_MS)
    else:
        client.opened()
        client.producer.abandon()
        client.producer = client.start(ADMIN_TIMEOUT_MS)
        client.aborted_for(TransitionKind.TAKEOVER)
    client.again()


#: How many of a hundred; at least one of each.
OUTCOMES: Mapping[Callable[[LoggedClient], None], float] = {
    commit: 28, abort: 13, late_abort: 3, foreign_init: 3, quick_takeover: 3, empty: 2,
    empty_abort: 3, reinit: 10, takeover: 12, takeover_and_gone: 3,
    kill: 2, timeout: 3, fence: 4, fence_idle: 2, recovery: 2, self_recovery: 1,
    restarts: 2, fence_with_own_timeout: 2, waits_with_30_s: 2,
}  # fmt: skip


def shuffled_outcomes(amount: int, dice: random.Random) -> list[Callable[[LoggedClient], None]]:
    """Return so many outcomes in random order, each in its share and at least once."""
    chosen = [
        outcome for outcome, share in OUTCOMES.items() for _ in range(max(1, int(amount * share / 100)))
    ]
    chosen += dice.choices(list(OUTCOMES), list(OUTCOMES.values()), k=max(0, amount - len(chosen)))
    dice.shuffle(chosen)
    return chosen


def run_clients(
    cluster: ClientCluster,
    ids: list[str],
    amount: int,
    seed: int,
    *,
    java_uses_protocol_2: bool,
    recovers: bool,
    threads: int = 16,
) -> dict[str, list[ExpectedRecord]]:
    """Run `amount` transactions under these ids; return each id's log."""
    outcomes = shuffled_outcomes(amount, random.Random(seed))
    versions = {"java_uses_protocol_2": java_uses_protocol_2, "recovers": recovers}
    clients = [LoggedClient(cluster, name, random.Random(f"{seed} {name}"), **versions) for name in ids]
    with ThreadPoolExecutor(threads) as pool:
        logs = pool.map(
            lambda number: clients[number].play_all(outcomes[number :: len(ids)]), range(len(ids))
        )
        return dict(zip(ids, logs, strict=True))
