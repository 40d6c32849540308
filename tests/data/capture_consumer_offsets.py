"""Let groups of every kind live on a real broker and keep every record of `__consumer_offsets` they leave.

    python -m tests.data.capture_consumer_offsets 4.2.0 3.9.1

Writes `consumer_offsets/kafka-VERSION.jsonl`: one object per record with the bytes in hex, and beside them
what Kafka's own OffsetsMessageFormatter or GroupMetadataMessageFormatter (the console consumer) printed for
the same record; null for the types that they pass over.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway

from sandbox.engines.kafka import java_gateway
from sandbox.java import fetch_jars, find_java
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.data.capture_transaction_state import json_objects
from tests.java.clients import JavaProducer
from tests.java.consumers import JavaConsumer
from tests.kafka.group_commits import (
    administer,
    commit_offsets,
    group_member,
    write_records,
)
from tests.kafka.producers import LibrdkafkaProducer
from tests.kafka.topic_records import raw_records
from tests.waiting import wait_for

TOPIC = "__consumer_offsets"
FOLDER = Path(__file__).with_name("consumer_offsets")
FORMATTERS = ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
STRANGE = "ünï\\code ✓\t𝄞 id"


def live(broker: Broker, gateway: JavaGateway) -> None:
    """Commit, join, leave, delete, in every way that this version has."""
    where = broker.bootstrap
    create_topics(where, "orders", "payments", "doomed")
    for topic in ("orders", "payments", "doomed"):
        write_records(where, topic)
    commit_offsets(where, "plain", "orders", p0=3, p2=10)
    for length in (125, 126, 127, 128, 4000):
        commit_offsets(where, f"metadata-{length}", "orders", metadata="m" * length, p0=1)
    commit_offsets(where, STRANGE, "payments", metadata=STRANGE, p1=1)
    commit_offsets(where, "of-doomed", "doomed", p0=1)
    commit_offsets(where, "deleted", "orders", p0=1)
    group_member(where, "librdkafka", "orders").close()
    _java(broker, gateway)
    for producer in (LibrdkafkaProducer(where, "l"), JavaProducer(gateway, where, "j")):
        producer.init()
        for ends in (producer.commit, producer.abort):
            producer.begin()
            producer.send_offsets("of-transactions", {("orders", 1): 4, ("orders", 2): 5})
            ends()
    administer(where, "delete_consumer_groups", ["deleted"])
    administer(where, "delete_topics", ["doomed"])
    wait_for(lambda: _tombstones(broker) >= 2, "tombstones of both", 60)


def _java(broker: Broker, gateway: JavaGateway) -> None:
    """Join groups as Java does, by each protocol that the broker has."""
    protocols = ["classic"] if broker.version.startswith("3.") else ["classic", "consumer"]
    for protocol in protocols:
        settings = {"group.protocol": protocol, "client.id": f"of-{protocol}", "group.instance.id": "fixed"}
        with JavaConsumer(gateway, broker.bootstrap, f"java-{protocol}", "orders", settings) as consumer:
            wait_for(consumer.poll, "records", 60)
            consumer.commit()
    if len(protocols) > 1:
        with JavaConsumer(gateway, broker.bootstrap, "java-share", "orders", share=True) as consumer:
            consumer.poll(2_000)


def _tombstones(broker: Broker) -> int:
    records = sorted(raw_records(broker.bootstrap, TOPIC))
    return sum(each.value is None and (each.key or b"")[:2] == b"\x00\x01" for each in records)


def printed(broker: Broker, folder: Path) -> dict[str, deque[dict[str, Any]]]:
    """Return what Kafka's formatters print, by the key as JSON, each in the order of the topic.

    Those of 4.2, for 3.9 has none that print JSON.
    """
    found: defaultdict[str, deque[dict[str, Any]]] = defaultdict(deque)
    tools = Broker(folder, version="4.2.0")
    tools.prepare()
    for formatter in FORMATTERS:
        command = tools.tool_command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap,
            "--topic", TOPIC, "--from-beginning", "--timeout-ms", "6000",
            "--isolation-level", "read_committed", "--formatter",
            f"org.apache.kafka.tools.consumer.{formatter}",
        )  # fmt: skip
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        for row in json_objects(text):
            found[json.dumps(row["key"], sort_keys=True)].append(row)
    return found


def capture(version: str, folder: Path) -> None:
    """Write one version's file."""
    properties = {"offsets.topic.num.partitions": "5", "group.initial.rebalance.delay.ms": "0"}
    with (
        Broker(folder / "kafka", version=version, properties=properties) as broker,
        (folder / "java.log").open("ab") as log,
        java_gateway(find_java(folder), fetch_jars("kafka-4.2.0"), log) as gateway,
    ):
        live(broker, gateway)
        records = sorted(raw_records(broker.bootstrap, TOPIC))
        said = printed(broker, folder / "tools")
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"kafka-{version}.jsonl").open("w") as file:
        for record in records:
            assert record.key is not None
            # The console consumer's own group comes and goes while it prints.
            row = {
                "partition": record.partition,
                "offset": record.offset,
                "key": record.key.hex(),
                "value": None if record.value is None else record.value.hex(),
                "formatter": _said(record.key, said),
            }
            file.write(json.dumps(row) + "\n")


def _said(key: bytes, said: dict[str, deque[dict[str, Any]]]) -> dict[str, Any] | None:
    rows = said.get(json.dumps(_key(key), sort_keys=True))
    return rows.popleft() if rows else None


def _key(key: bytes) -> dict[str, Any]:
    """Return a key as the formatters print it."""
    kind, length = int.from_bytes(key[:2], "big"), int.from_bytes(key[2:4], "big")
    data: dict[str, Any] = {"group": key[4 : 4 + length].decode()}
    if kind < 2:
        rest = key[4 + length :]
        data["topic"] = rest[2 : 2 + int.from_bytes(rest[:2], "big")].decode()
        data["partition"] = int.from_bytes(rest[-4:], "big")
    return {"type": kind, "data": data}


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="fenceline-capture-") as temporary:
            capture(wanted, Path(temporary))
