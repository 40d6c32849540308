"""What `capture_transaction_state` plays: scripted lives of one transactional id each, whose truth is known.

A scenario returns what truly happened, in the words of a transition's `kind` and in their
order. Left out: `extend`, which depends on how a client packs its partitions, and `expiry`, which comes to
every id at the end. `reinit` is any initialisation of an id that had nothing open, also by the producer that
has it: KIP-360's recovery, as both libraries do it, first aborts and then initialises.
"""

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaException
from py4j.java_gateway import JavaGateway

from sandbox.kafka import Broker
from sandbox.scenes.wire import CoordinatorConnection, CoordinatorRefused, Identity
from tests.java.clients import JavaAdmin, JavaError, JavaProducer
from tests.kafka.producers import LibrdkafkaProducer, TransactionalProducer, wait_until_refused
from tests.kafka.raw_producers import RawProducer
from tests.waiting import wait_for

TOPICS = ("orders", "payments", "every-legal_kind.of.CHARACTER-0")
#: Not at the ends: Java trims its settings.
STRANGE = "ünï\\code ✓\t𝄞 id"
#: The last epoch that an initialisation gives; the coordinator's own abort goes one beyond.
LAST_EPOCH = 32766


@dataclass
class Stage:
    """What a scenario plays on: one transactional id, and producers of one client library for it."""

    broker: Broker
    gateway: JavaGateway
    admin: JavaAdmin
    client: str
    transactional_id: str
    #: Initialised so often that only the records from this epoch on are worth keeping.
    burnt_to: int | None = None

    @property
    def protocol_2(self) -> bool:
        """Whether this client and this broker speak transaction protocol 2 with each other."""
        return self.client == "java" and self.broker.version != "3.9.1"

    def producer(
        self, timeout_ms: int = 60_000, client: str = "", settings: dict[str, str] | None = None
    ) -> TransactionalProducer:
        """Return another producer for the id, not yet initialised."""
        where = self.broker.bootstrap, self.transactional_id
        chosen = {"transaction.timeout.ms": str(timeout_ms), **(settings or {})}
        match client or self.client:
            case "java":
                return JavaProducer(self.gateway, *where, chosen)
            case "librdkafka":
                return LibrdkafkaProducer(*where, chosen)
        return self.raw(timeout_ms)

    def raw(self, timeout_ms: int = 60_000) -> RawProducer:
        """Return a producer that speaks request by request."""
        return RawProducer(self.broker.bootstrap, self.transactional_id, timeout_ms)

    def opened(self, timeout_ms: int = 60_000, client: str = "") -> TransactionalProducer:
        """Return a producer with an open transaction whose record has arrived."""
        producer = self.producer(timeout_ms, client)
        producer.init()
        begin(producer, "orders", 0)
        return producer

    def stranger(self) -> RawProducer:
        """Return a raw producer under the identity of whoever has the id now."""
        found = self.admin.describe_transactions([self.transactional_id])[self.transactional_id]
        identity = Identity(found.producer_id, found.producer_epoch)
        return RawProducer(self.broker.bootstrap, self.transactional_id, identity=identity)

    def burn(self, epoch: int) -> None:
        """Initialise the id until it is at this epoch."""
        with CoordinatorConnection(self.broker.bootstrap, self.transactional_id) as coordinator:
            first = coordinator.init_producer_id()
            *_, last = coordinator.init_again(epoch - first.epoch)
        assert last == Identity(first.producer_id, epoch)
        self.burnt_to = epoch

    def wait_until(self, state: str) -> None:
        """Wait until the coordinator has the id in this state."""
        ids = [self.transactional_id]
        wait_for(
            lambda: self.admin.describe_transactions(ids)[self.transactional_id].state == state,
            f"{self.transactional_id} is {state}",
        )

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep the broker from answering."""
        process = self.broker.process
        assert isinstance(process, subprocess.Popen)
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)


def begin(producer: TransactionalProducer, topic: str, partition: int) -> None:
    """Begin a transaction and wait until its record has arrived."""
    producer.begin()
    producer.send(topic, partition)
    producer.flush()


class Scenario(Protocol):
    """A function that plays, and returns the kinds that truly happened."""

    __name__: str

    def __call__(self, stage: Stage) -> str:
        """Play."""


def commit(stage: Stage) -> str:
    """Two commits and an abort by one producer, the next at once after the last."""
    producer = stage.opened()
    producer.commit()
    for end in (producer.commit, producer.abort):
        begin(producer, "payments", 1)
        end()
    return "init begin commit begin commit begin client_abort"


def abort(stage: Stage) -> str:
    """A client's own abort."""
    stage.opened().abort()
    return "init begin client_abort"


def abort_and_go_on(stage: Stage) -> str:
    """A client's own abort, and the same producer's next transaction."""
    producer = stage.opened()
    producer.abort()
    begin(producer, "orders", 1)
    producer.commit()
    return "init begin client_abort begin commit"


def abort_then_another(stage: Stage) -> str:
    """A client's own abort, and at once another producer for the id."""
    stage.opened().abort()
    stage.opened().commit()
    return "init begin client_abort reinit begin commit"


def takeover(stage: Stage) -> str:
    """A second producer initialises while the first has a transaction open, and commits one of its own."""
    return _taken_over_by(stage, stage.client)


def takeover_crosswise(stage: Stage) -> str:
    """The same, and the second is of the other library."""
    return _taken_over_by(stage, "librdkafka" if stage.client == "java" else "java")


def _taken_over_by(stage: Stage, client: str) -> str:
    first, second = stage.opened(), stage.producer(client=client)
    second.init()
    with suppress(JavaError, KafkaException):
        first.commit()
        raise AssertionError("the fenced producer could commit")
    second.begin()
    second.send("orders", 2)
    second.commit()
    return "init begin takeover begin commit"


def takeover_and_gone(stage: Stage) -> str:
    """A second producer asks once while a transaction is open, and never again."""
    stage.opened()
    stranger = stage.raw()
    with suppress(CoordinatorRefused):
        stranger.init_once()
        raise AssertionError("initialised before the open transaction was aborted")
    stage.wait_until("CompleteAbort")
    return "init begin takeover"


def timeout(stage: Stage) -> str:
    """The coordinator ends a transaction past its timeout."""
    stage.opened(timeout_ms=1500)
    stage.wait_until("CompleteAbort")
    return "init begin timeout"


def timeout_then_another(stage: Stage) -> str:
    """The same, and then another producer comes."""
    stage.opened(timeout_ms=1500)
    stage.wait_until("CompleteAbort")
    stage.opened().commit()
    return "init begin timeout reinit begin commit"


def reinit(stage: Stage) -> str:
    """A second producer initialises while nothing is open, with another timeout."""
    stage.opened().commit()
    stage.producer(timeout_ms=45000).init()
    return "init begin commit reinit"


def fence(stage: Stage) -> str:
    """Admin.fenceProducers while a transaction is open."""
    stage.opened()
    stage.admin.fence_producers([stage.transactional_id])
    stage.wait_until("Empty")
    return "init begin admin_fence"


def fence_idle(stage: Stage) -> str:
    """Admin.fenceProducers while nothing is open."""
    stage.opened().commit()
    stage.admin.fence_producers([stage.transactional_id])
    stage.wait_until("Empty")
    return "init begin commit admin_fence"


def empty_abort(stage: Stage) -> str:
    """Aborts before any record has left, of an id that is new, and of one that has committed.

    Now and then Java's sender gets the record out all the same, and then this must be captured again.
    """
    producer = stage.producer(settings={"linger.ms": "60000"})
    producer.init()
    for _ in range(2):
        producer.begin()
        producer.send("orders", 0)
        if not stage.protocol_2:
            # Java forgets to end what it begins in the very moment of the abort.
            stage.wait_until("Ongoing")
        producer.abort()
        producer.begin()
        producer.send("orders", 1)
        producer.commit()
    return "init" + 2 * (
        " empty_abort begin commit" if stage.protocol_2 else " begin client_abort begin commit"
    )


def old_commit(stage: Stage) -> str:
    """A stranger commits with the old protocol what a producer has begun, as after a recovery."""
    stage.opened()
    stage.stranger().commit()
    stage.wait_until("CompleteCommit")
    return "init begin commit"


def old_abort(stage: Stage) -> str:
    """A stranger aborts with the old protocol what a producer has begun."""
    stage.opened()
    stage.stranger().abort()
    stage.wait_until("CompleteAbort")
    return "init begin client_abort"


def recovery(stage: Stage) -> str:
    """KIP-360 as the libraries do it: records are lost, the producer aborts, raises its epoch and goes on."""
    java = {"delivery.timeout.ms": "1500", "request.timeout.ms": "1000", "linger.ms": "0"}
    librdkafka = {"message.timeout.ms": "1500", "socket.timeout.ms": "1000"}
    producer = stage.producer(settings=java if stage.client == "java" else librdkafka)
    producer.init()
    begin(producer, "orders", 0)
    with stage.frozen():
        producer.send("orders", 0)
        producer.flush()
    wait_until_refused(producer, "orders")
    producer.abort()
    begin(producer, "orders", 1)
    producer.commit()
    return f"init begin client_abort{'' if stage.protocol_2 else ' reinit'} begin commit"


def self_recovery(stage: Stage) -> str:
    """KIP-360 while a transaction is open: a producer initialises under its own identity, and goes on.

    Kafka 3.9 aborts and then refuses: the producer has fenced itself, a takeover that nobody comes back from.
    """
    producer = stage.raw()
    producer.init()
    producer.send("orders", 0)
    if stage.broker.version == "3.9.1":
        with suppress(CoordinatorRefused):
            producer.recover()
            raise AssertionError("3.9 has learned to recover while a transaction is open")
        return "init begin takeover"
    producer.recover()
    producer.send("orders", 1)
    producer.commit()
    return "init begin self_recovery begin commit"


def rotation_empty(stage: Stage) -> str:
    """An initialisation at the last epoch: another producer id."""
    stage.burn(LAST_EPOCH)
    stage.opened().commit()
    return "baseline rotation begin commit"


def rotation_end(stage: Stage) -> str:
    """Commits at the last epoch: under protocol 2 the end itself gives another producer id."""
    stage.burn(LAST_EPOCH - 1)
    producer = stage.opened()
    producer.commit()
    begin(producer, "orders", 1)
    producer.commit()
    return f"baseline reinit begin commit{' rotation' if stage.protocol_2 else ''} begin commit"


def rotation_timeout(stage: Stage) -> str:
    """The coordinator's own abort at the last epoch: only the next producer gets another producer id."""
    stage.burn(LAST_EPOCH - 1)
    stage.opened(timeout_ms=1500)
    stage.wait_until("CompleteAbort")
    stage.opened().commit()
    return "baseline reinit begin timeout rotation begin commit"


def rotation_takeover(stage: Stage) -> str:
    """A takeover at the last epoch."""
    stage.burn(LAST_EPOCH - 1)
    stage.opened()
    stage.opened().commit()
    return "baseline reinit begin takeover rotation begin commit"


def many_topics(stage: Stage) -> str:
    """All partitions of several topics."""
    producer = stage.opened()
    for topic in TOPICS:
        for partition in range(3):
            producer.send(topic, partition)
    producer.commit()
    return "init begin commit"


def offsets(stage: Stage) -> str:
    """Read-process-write: a group's offsets and a record in one transaction."""
    producer = stage.opened()
    producer.send_offsets(f"{stage.client}-group", {("orders", 0): 7, ("orders", 1): 9})
    producer.commit()
    return "init begin commit"


def performance(stage: Stage) -> str:
    """Kafka's own ProducerPerformance, of the broker's version, in one transaction."""
    command = stage.broker.tool_command(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "payments", "--num-records", "100",
        "--record-size", "10", "--throughput", "-1", "--transactional-id", stage.transactional_id,
        "--transaction-duration-ms", "600000",
        "--producer-props", f"bootstrap.servers={stage.broker.bootstrap}",
    )  # fmt: skip
    subprocess.run(command, capture_output=True, check=True)
    return "init begin commit"


def strange_id(stage: Stage) -> str:
    """An id of more than ASCII, with a backslash and a control character."""
    stage.opened().commit()
    return "init begin commit"


def reborn(stage: Stage) -> str:
    """An id that expires, and comes back."""
    stage.opened().commit()
    wait_for(lambda: stage.transactional_id not in stage.admin.list_transactions(), "it expires", 60)
    stage.opened().commit()
    return "init begin commit expiry init begin commit"


def left_open(stage: Stage) -> str:
    """Neither committed nor aborted: it is open when the records are read, and never expires."""
    stage.opened(timeout_ms=600_000)
    return "init begin"


BOTH = ("java", "librdkafka")
#: Which clients play each.
SCENARIOS: dict[Callable[[Stage], str], tuple[str, ...]] = {
    commit: BOTH, abort: BOTH, abort_and_go_on: BOTH, abort_then_another: BOTH,
    takeover: BOTH, takeover_crosswise: BOTH, takeover_and_gone: BOTH,
    timeout: BOTH, timeout_then_another: BOTH, reinit: BOTH, fence: BOTH, fence_idle: BOTH,
    empty_abort: ("java",), old_commit: ("java",), old_abort: ("java",),
    recovery: BOTH, self_recovery: ("raw",),
    rotation_empty: BOTH, rotation_end: BOTH, rotation_timeout: BOTH, rotation_takeover: BOTH,
    many_topics: BOTH, offsets: BOTH, performance: ("tool",), strange_id: BOTH, reborn: BOTH,
    left_open: BOTH,
}  # fmt: skip
