"""Play scenarios on a real broker and keep every record of `__transaction_state` that they leave.

    python -m tests.data.capture_transaction_state 4.2.0 3.9.1

Writes `transaction_state/kafka-VERSION.jsonl`: one object per record with the bytes in hex, and beside them
what Kafka's own TransactionLogMessageFormatter (the console consumer) printed for the same record.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from py4j.java_gateway import JavaGateway

from sandbox.java import find_java, jars
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin, JavaError, JavaProducer
from tests.java.gateway import java_gateway
from tests.kafka.observe import TOPIC, RawRecord, raw_records
from tests.kafka.producers import LibrdkafkaProducer, TransactionalProducer
from tests.waiting import wait_for

FOLDER = Path(__file__).with_name("transaction_state")
TOPICS = ("orders", "payments", "every-legal_kind.of.CHARACTER-0")
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # Ids expire while we wait, so that the tombstones are real ones too.
    "transactional.id.expiration.ms": "8000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}
CLIENTS = ("java", "librdkafka")
#: Not at the ends: Java trims its settings.
STRANGE = "ünï\\code ✓\t𝄞 id"


@dataclass
class Stage:
    """What a scenario plays on: one transactional id, and producers of one client library for it."""

    bootstrap: str
    gateway: JavaGateway
    admin: JavaAdmin
    client: str
    transactional_id: str

    def producer(self, timeout_ms: int = 60000) -> TransactionalProducer:
        """Return another producer for the id, not yet initialised."""
        settings = {"transaction.timeout.ms": str(timeout_ms)}
        if self.client == "java":
            return JavaProducer(self.gateway, self.bootstrap, self.transactional_id, settings)
        return LibrdkafkaProducer(self.bootstrap, self.transactional_id, settings)

    def opened(self, timeout_ms: int = 60000) -> TransactionalProducer:
        """Return a producer with an open transaction whose record has arrived."""
        producer = self.producer(timeout_ms)
        producer.init()
        producer.begin()
        producer.send("orders", 0)
        producer.flush()
        return producer

    def wait_until(self, state: str) -> None:
        """Wait until the coordinator has the id in this state."""
        ids = [self.transactional_id]
        wait_for(
            lambda: self.admin.describe_transactions(ids)[self.transactional_id].state == state,
            f"{self.transactional_id} is {state}",
        )


def commit(stage: Stage) -> None:
    """Two commits and an abort by one producer, the next at once after the last."""
    producer = stage.opened()
    producer.commit()
    for end in (producer.commit, producer.abort):
        producer.begin()
        producer.send("payments", 1)
        producer.flush()
        end()


def abort(stage: Stage) -> None:
    """A client's own abort."""
    stage.opened().abort()


def takeover(stage: Stage) -> None:
    """A second producer initialises while the first has a transaction open, and commits one of its own."""
    first, second = stage.opened(), stage.producer()
    second.init()
    with suppress(JavaError, KafkaException):
        first.commit()
        raise AssertionError("the fenced producer could commit")
    second.begin()
    second.send("orders", 2)
    second.commit()


def timeout(stage: Stage) -> None:
    """The coordinator ends a transaction past its timeout."""
    stage.opened(timeout_ms=1500)
    stage.wait_until("CompleteAbort")


def reinit(stage: Stage) -> None:
    """A second producer initialises while nothing is open, with another timeout."""
    stage.opened().commit()
    stage.producer(timeout_ms=45000).init()


def fence(stage: Stage) -> None:
    """Admin.fenceProducers while a transaction is open."""
    stage.opened()
    stage.admin.fence_producers([stage.transactional_id])
    stage.wait_until("Empty")


def many_topics(stage: Stage) -> None:
    """All partitions of several topics."""
    producer = stage.opened()
    for topic in TOPICS:
        for partition in range(3):
            producer.send(topic, partition)
    producer.commit()


def offsets(stage: Stage) -> None:
    """Read-process-write: a group's offsets and a record in one transaction."""
    producer = stage.opened()
    producer.send_offsets(f"{stage.client}-group", {("orders", 0): 7, ("orders", 1): 9})
    producer.commit()


def strange_id(stage: Stage) -> None:
    """An id of more than ASCII, with a backslash and a control character."""
    stage.opened().commit()


def left_open(stage: Stage) -> None:
    """Neither committed nor aborted: it is open when the records are read, and never expires."""
    stage.opened(timeout_ms=600_000)


SCENARIOS: tuple[Callable[[Stage], None], ...] = (
    commit, abort, takeover, timeout, reinit, fence, many_topics, offsets, strange_id, left_open
)  # fmt: skip


def play(broker: Broker, gateway: JavaGateway) -> dict[str, str]:
    """Play every scenario with every client library; return transactional id -> scenario."""
    played = {}
    create_topics(broker.bootstrap, *TOPICS)
    with JavaAdmin(gateway, broker.bootstrap) as admin:
        for scenario in SCENARIOS:
            for client in CLIENTS:
                name = f"{client}-{STRANGE if scenario is strange_id else scenario.__name__}"
                scenario(Stage(broker.bootstrap, gateway, admin, client, name))
                played[name] = f"{client}-{scenario.__name__}"
        wait_for(lambda: len(admin.list_transactions()) == len(CLIENTS), "the others expire", 60)
    return played


def formatted(broker: Broker) -> dict[str, list[dict[str, Any]]]:
    """Return what Kafka's formatter prints, per transactional id in the order of the topic."""
    command = broker.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap,
        "--topic", TOPIC, "--from-beginning", "--formatter", FORMATTER, "--timeout-ms", "4000",
    )  # fmt: skip
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = defaultdict(list)
    for row in json_objects(printed):
        found[row["key"]["data"]["transactionalId"]].append(row)
    return found


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Split JSON objects that stand one behind the other with nothing between them."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        row, at = decoder.raw_decode(text, at)
        yield row
        at += len(text[at:]) - len(text[at:].lstrip())


def capture(version: str, folder: Path) -> None:
    """Write one version's file."""
    with (
        Broker(folder / "kafka", version=version, properties=PROPERTIES) as broker,
        (folder / "java.log").open("ab") as log,
        java_gateway(find_java(folder), jars("kafka-4.2.0"), log) as gateway,
    ):
        scenarios = play(broker, gateway)
        records = sorted(raw_records(broker.bootstrap))
        printed = formatted(broker)
    rows = [row(record, scenarios, printed) for record in records]
    assert not any(printed.values()), printed
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"kafka-{version}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))


def row(record: RawRecord, scenarios: dict[str, str], printed: dict[str, list[Any]]) -> dict[str, Any]:
    """Return one line of the file."""
    assert record.key is not None
    transactional_id = record.key[4:].decode()
    return {
        "scenario": scenarios[transactional_id],
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "formatter": printed[transactional_id].pop(0),
    }


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="fenceline-capture-") as temporary:
            capture(wanted, Path(temporary))
