"""Proves the decoder on bytes that real 3.9.1 and 4.2.0 brokers wrote, against what Kafka's own tool printed.

`tests/data/capture_transaction_state.py` made the files.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from fenceline.decode.text import unescape_text
from fenceline.decode.transaction_state import STATES, decode_record
from fenceline.facts import Tombstone, TopicPartitions, TransactionRecord
from fenceline.kafka.coordinator import partition_for
from tests.transaction_state_records import encode_key, encode_value

FOLDER = Path(__file__).parents[2] / "data" / "transaction_state"
#: `transaction.state.log.num.partitions` of the brokers that wrote the files.
PARTITIONS = 10

Row = dict[str, Any]


def rows(version: str) -> list[Row]:
    """The captured records of one version, ordered by partition and offset."""
    return [json.loads(line) for line in (FOLDER / f"kafka-{version}.jsonl").read_text().splitlines()]


def read(row: Row) -> TransactionRecord | Tombstone:
    """The record that the decoder returns for a row."""
    value = None if row["value"] is None else bytes.fromhex(row["value"])
    found = decode_record(bytes.fromhex(row["key"]), value)
    assert isinstance(found, TransactionRecord | Tombstone), found
    return found


def record_printed_by_kafka(row: Row) -> TransactionRecord | Tombstone:
    """What Kafka's formatter printed of a row, as a record of the decoder."""
    transactional_id = row["formatter"]["key"]["data"]["transactionalId"].replace("\\", "\\\\")
    transactional_id = transactional_id.replace("\t", "\\x09")
    if row["formatter"]["value"] is None:
        return Tombstone(transactional_id)
    data = row["formatter"]["value"]["data"]
    topics = data["transactionPartitions"]
    start = data["transactionStartTimestampMs"]
    return TransactionRecord(
        transactional_id,
        STATES[data["transactionStatus"]],
        data["producerId"],
        data["producerEpoch"],
        data["transactionTimeoutMs"],
        None
        if topics is None
        else tuple(TopicPartitions(topic["topic"], tuple(topic["partitionIds"])) for topic in topics),
        data["transactionLastUpdateTimestampMs"],
        None if start == -1 else start,
        # The formatter leaves tags out that have their default.
        data.get("clientTransactionVersion", 0),
        data.get("previousProducerId"),
        data.get("nextProducerId"),
        data.get("nextProducerEpoch"),
        value_version=row["formatter"]["value"]["version"],
    )


@pytest.mark.parametrize(("version", "value_version"), [("3.9.1", 0), ("4.2.0", 1)])
def test_it_reads_what_kafka_prints(version: str, value_version: int) -> None:
    captured = rows(version)
    assert len(captured) > 100
    for row in captured:
        assert read(row) == record_printed_by_kafka(row), row
    found = {record.value_version for row in captured if isinstance(record := read(row), TransactionRecord)}
    assert found == {value_version}


@pytest.mark.parametrize("version", ["3.9.1", "4.2.0"])
def test_it_writes_the_bytes_that_kafka_wrote(version: str) -> None:
    for row in rows(version):
        record = read(row)
        assert encode_key(record.transactional_id).hex() == row["key"]
        if isinstance(record, TransactionRecord):
            assert encode_value(record).hex() == row["value"]


@pytest.mark.parametrize("version", ["3.9.1", "4.2.0"])
def test_ids_map_to_the_partitions_that_kafka_chose(version: str) -> None:
    for row in rows(version):
        raw = unescape_text(read(row).transactional_id)
        assert partition_for(raw, PARTITIONS) == row["partition"], row


E, O, PC, CC, PA, CA = (  # noqa: E741
    "Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"
)  # fmt: skip
#: scenario -> (state, epoch, client version) of each record up to the tombstone.
SEQUENCES = {
    ("4.2.0", "java-abort"): [(E, 0, 0), (O, 0, 2), (PA, 1, 2), (CA, 1, 2)],
    ("4.2.0", "java-takeover"): [
        (E, 0, 0), (O, 0, 2), (PA, 1, 2), (CA, 1, 2), (E, 2, 2), (O, 2, 2), (PC, 3, 2), (CC, 3, 2)
    ],
    ("4.2.0", "java-timeout"): [(E, 0, 0), (O, 0, 2), (PA, 1, 2), (CA, 1, 2)],
    ("4.2.0", "java-reinit"): [(E, 0, 0), (O, 0, 2), (PC, 1, 2), (CC, 1, 2), (E, 2, 2)],
    ("4.2.0", "librdkafka-abort"): [(E, 0, 0), (O, 0, 0), (PA, 0, 0), (CA, 0, 0)],
    ("4.2.0", "librdkafka-takeover"): [
        (E, 0, 0), (O, 0, 0), (PA, 1, 2), (CA, 1, 2), (E, 2, 2), (O, 2, 0), (PC, 2, 0), (CC, 2, 0)
    ],
    ("4.2.0", "librdkafka-timeout"): [(E, 0, 0), (O, 0, 0), (PA, 1, 2), (CA, 1, 2)],
    ("4.2.0", "librdkafka-reinit"): [(E, 0, 0), (O, 0, 0), (PC, 0, 0), (CC, 0, 0), (E, 1, 0)],
    ("3.9.1", "java-abort"): [(E, 0, 0), (O, 0, 0), (PA, 0, 0), (CA, 0, 0)],
    ("3.9.1", "java-takeover"): [
        (E, 0, 0), (O, 0, 0), (PA, 1, 0), (CA, 1, 0), (E, 2, 0), (O, 2, 0), (PC, 2, 0), (CC, 2, 0)
    ],
    ("3.9.1", "librdkafka-timeout"): [(E, 0, 0), (O, 0, 0), (PA, 1, 0), (CA, 1, 0)],
    ("3.9.1", "librdkafka-reinit"): [(E, 0, 0), (O, 0, 0), (PC, 0, 0), (CC, 0, 0), (E, 1, 0)],
}  # fmt: skip


@pytest.mark.parametrize(("version", "scenario"), SEQUENCES)
def test_epochs_and_tags_that_distinguish_events_are_decoded(version: str, scenario: str) -> None:
    """A change here would be a new broker's: the transitions are derived from exactly these."""
    records = [read(row) for row in rows(version) if row["scenario"] == scenario]
    assert isinstance(records.pop(), Tombstone)
    assert [
        (record.state, record.producer_epoch, record.client_version)
        for record in records
        if isinstance(record, TransactionRecord)
    ] == SEQUENCES[version, scenario]


@pytest.mark.parametrize("version", ["3.9.1", "4.2.0"])
def test_partitions_distinguish_open_complete_and_empty_transactions(version: str) -> None:
    """None while Empty, none left once complete, and the whole set until then."""
    largest: dict[str, int] = defaultdict(int)
    for row in rows(version):
        record = read(row)
        if isinstance(record, Tombstone) or record.state == E:
            assert isinstance(record, Tombstone) or (record.partitions, record.started_ms) == (None, None)
            continue
        amount = sum(len(topic.partitions) for topic in record.partitions or ())
        if record.state in (CC, CA):
            assert record.partitions == ()
            largest[row["scenario"]] = 0
        else:
            assert amount >= largest[row["scenario"]]
            largest[row["scenario"]] = amount
