"""Proves the decoder on bytes that real 3.9.1 and 4.2.0 brokers wrote, against what Kafka's own tool printed.

`tests/data/capture_transaction_state.py` made the files.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fenceline.decode.text import unescape_text
from fenceline.decode.transaction_state import STATES, decode_record
from fenceline.facts import Tombstone, TopicPartitions, TransactionRecord
from fenceline.kafka.coordinator import partition_for

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
def test_ids_map_to_the_partitions_that_kafka_chose(version: str) -> None:
    for row in rows(version):
        raw = unescape_text(read(row).transactional_id)
        assert partition_for(raw, PARTITIONS) == row["partition"], row
