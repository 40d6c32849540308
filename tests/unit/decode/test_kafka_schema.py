"""Proves that this codec and kafka-python's, driven by Kafka's own schema, agree on every byte and field."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode.text import unescape_text
from fenceline.decode.transaction_state import STATES, decode_record
from fenceline.facts import TransactionRecord
from tests.transaction_state_records import encode_key, encode_value
from tests.unit.decode import samples
from tests.unit.decode.kafka_schema import LaterValue, TransactionLogKey, TransactionLogValue

#: Its codec reads and writes names as UTF-8 text, so only ids that are text can be compared.
text_ids = samples.names


def other_codec_value(record: TransactionRecord, schema: Any = TransactionLogValue) -> Any:
    """The same facts in the other codec's class."""
    return schema(
        version=record.value_version,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=STATES.index(record.state),
        transaction_partitions=other_codec_topics(record, schema.PartitionsSchema),
        transaction_last_update_timestamp_ms=record.updated_ms,
        transaction_start_timestamp_ms=-1 if record.started_ms is None else record.started_ms,
        **other_codec_tags(record),
    )


def other_codec_topics(record: TransactionRecord, make: Any) -> list[Any] | None:
    """Topics as the other codec takes them."""
    if record.partitions is None:
        return None
    version = record.value_version
    return [
        make(version=version, topic=unescape_text(topic).decode(), partition_ids=list(numbers))
        for topic, numbers in record.partitions
    ]


def other_codec_tags(record: TransactionRecord) -> dict[str, int]:
    """Tags that differ from their default; the other codec writes every tag that it is given."""
    tags = {
        "client_transaction_version": record.client_version or None,
        "previous_producer_id": record.previous_producer_id,
        "next_producer_id": record.next_producer_id,
        "next_producer_epoch": record.next_producer_epoch,
        "last_producer_epoch": record.last_producer_epoch,
    }
    return {name: number for name, number in tags.items() if number is not None}


@given(samples.records(text_ids))
def test_it_reads_what_the_other_codec_writes_and_writes_the_same_bytes(record: TransactionRecord) -> None:
    key = TransactionLogKey(transactional_id=unescape_text(record.transactional_id).decode()).encode(
        version=0
    )
    value = other_codec_value(record).encode(version=record.value_version)
    assert decode_record(key, value) == record
    assert (encode_key(record.transactional_id), encode_value(record)) == (key, value)


@given(samples.records(text_ids, version=1), st.binary(min_size=1, max_size=300))
def test_fields_of_a_later_schema_are_skipped(record: TransactionRecord, noise: bytes) -> None:
    later = other_codec_value(record, LaterValue)
    later.later = noise
    for topic in later.transaction_partitions or ():
        topic.later = noise
    written = later.encode(version=1)
    assert noise in written
    assert decode_record(encode_key(record.transactional_id), written) == record
