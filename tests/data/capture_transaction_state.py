"""Play scenarios on a real broker and keep every record of `__transaction_state` that they leave.

    python -m tests.data.capture_transaction_state 4.2.0 3.9.1

Writes `transaction_state/kafka-VERSION.jsonl`: one object per record with the bytes in hex, and beside them
what Kafka's own TransactionLogMessageFormatter (the console consumer) printed for the same record. Writes
`transaction_state/truth.json`: version -> scenario -> the kinds of transition that truly happened, as
`tests.data.scenarios` returns them.

Of an id that was initialised until its epochs were used up only the end is kept, as compaction would do.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway

from fenceline.decode.transaction_state import decode_record
from fenceline.facts import TransactionRecord
from sandbox.engines.kafka import java_gateway
from sandbox.java import fetch_jars, find_java
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.data.scenarios import BOTH, SCENARIOS, STRANGE, TOPICS, Stage, strange_id
from tests.java.clients import JavaAdmin
from tests.kafka.topic_records import TOPIC, RawRecord, raw_records
from tests.waiting import wait_for

FOLDER = Path(__file__).with_name("transaction_state")
TRUTH = FOLDER / "truth.json"
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # Ids expire while we wait, so that the tombstones are real ones too.
    "transactional.id.expiration.ms": "8000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}


class Played:
    """One scenario that was played by one client, and what came of it."""

    def __init__(self, name: str, stage: Stage, truth: str) -> None:
        self.name, self.truth = name, truth.split()
        self._kept_from_epoch = stage.burnt_to or 0
        self._keeps = not self._kept_from_epoch

    def keeps(self, record: RawRecord) -> bool:
        """Whether the next record of its id is worth keeping."""
        found = decode_record(record.key, record.value)
        if isinstance(found, TransactionRecord):
            self._keeps = self._keeps or found.producer_epoch >= self._kept_from_epoch
        return self._keeps


def play(broker: Broker, gateway: JavaGateway) -> dict[str, Played]:
    """Play every scenario with every client library; return by transactional id what was played."""
    played = {}
    create_topics(broker.bootstrap, *TOPICS)
    with JavaAdmin(gateway, broker.bootstrap) as admin:
        for scenario, clients in SCENARIOS.items():
            for client in clients:
                title = f"{client}-{scenario.__name__}"
                name = f"{client}-{STRANGE}" if scenario is strange_id else title
                stage = Stage(broker, gateway, admin, client, name)
                print(f"{broker.version} {title}", flush=True)
                played[name] = Played(title, stage, scenario(stage))
        wait_for(lambda: len(admin.list_transactions()) == len(BOTH), "the others expire", 60)
    return played


def formatted(broker: Broker) -> dict[str, list[dict[str, Any]]]:
    """Return what Kafka's formatter prints, per transactional id in the order of the topic."""
    command = broker.tool_command(
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
    decoder, at, end = json.JSONDecoder(), 0, len(text.rstrip())
    while at < end:
        row, at = decoder.raw_decode(text, at)
        yield row
        while at < end and text[at].isspace():
            at += 1


def capture(version: str, folder: Path) -> None:
    """Write one version's file, and its part of the truth."""
    with (
        Broker(folder / "kafka", version=version, properties=PROPERTIES) as broker,
        (folder / "java.log").open("ab") as log,
        java_gateway(find_java(folder), fetch_jars("kafka-4.2.0"), log) as gateway,
    ):
        played = play(broker, gateway)
        records = sorted(raw_records(broker.bootstrap))
        printed = formatted(broker)
    rows = [line for record in records if (line := row(record, played, printed))]
    assert not any(printed.values()), printed
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"kafka-{version}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    truth = json.loads(TRUTH.read_text()) if TRUTH.exists() else {}
    truth[version] = {each.name: each.truth for each in played.values()}
    TRUTH.write_text(json.dumps(truth, indent=1) + "\n")


def row(record: RawRecord, played: dict[str, Played], printed: dict[str, list[Any]]) -> dict[str, Any] | None:
    """Return one line of the file, None for a record that is not kept."""
    assert record.key is not None
    transactional_id = record.key[4:].decode()
    said = printed[transactional_id].pop(0)
    if not played[transactional_id].keeps(record):
        return None
    return {
        "scenario": played[transactional_id].name,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "formatter": said,
    }


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="fenceline-capture-") as temporary:
            capture(wanted, Path(temporary))
