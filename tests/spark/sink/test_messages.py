"""Proves on a real broker that rows of every shape that Arrow can give become the records that they are, in
their order, also where the queue is full, and that what can be no record is refused by its row."""

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Message, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.kafka import Broker
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.names import id_stem
from spark_pipeline.sink.options import translate_options
from spark_pipeline.sink.task.writer import Task, TaskPlan, write_transaction
from tests.brokers import create_topics
from tests.cases import cases

pytestmark = pytest.mark.kafka

PARTITIONS = 3
#: Of this year: records that are much older would be deleted by the topic's retention.
STAMPED_US = 1_790_000_000_000_000


class Pair(NamedTuple):
    """A transaction of a task, and what readers of two topics find of it."""

    bootstrap: str
    topics: tuple[str, str]
    numbers: Iterator[int]

    def write(self, batches: Sequence[pa.RecordBatch], **options: str) -> list[Message]:
        """Write batches in one transaction; return its records, those of a partition in their order."""
        ends = self._ends()
        given = {"kafka.bootstrap.servers": self.bootstrap, **options}
        plan = TaskPlan(
            translate_options(given), id_stem("rows", uuid.uuid4().hex), 1, None, 60_000, self.topics[0]
        )
        written = write_transaction(plan, Task(next(self.numbers), 0), batches)
        assert (written.records if written else 0) == sum(each.num_rows for each in batches)
        return list(self._between(ends, self._ends()))

    def _ends(self) -> dict[tuple[str, int], int]:
        consumer = self._consumer()
        names = itertools.product(self.topics, range(PARTITIONS))
        found = {name: consumer.get_watermark_offsets(TopicPartition(*name))[1] for name in names}
        consumer.close()
        return found

    def _between(
        self, starts: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]
    ) -> Iterator[Message]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(*name, offset) for name, offset in starts.items()])
        while not all(
            at.offset >= ends[at.topic, at.partition]
            or starts[at.topic, at.partition] == ends[at.topic, at.partition]
            for at in consumer.position([TopicPartition(*name) for name in ends])
        ):
            yield from consumer.consume(10_000, 0.05)
        consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "rows", "isolation.level": "read_uncommitted"}
        )


@pytest.fixture(scope="module")
def pair(kafka_42: Broker) -> Pair:
    topics = f"rows-{uuid.uuid4().hex[:8]}-a", f"rows-{uuid.uuid4().hex[:8]}-b"
    create_topics(kafka_42.bootstrap, *topics, partitions=PARTITIONS)
    return Pair(kafka_42.bootstrap, topics, itertools.count())


texts = st.none() | st.text(max_size=12)
data = st.none() | st.binary(max_size=12)
header = st.fixed_dictionaries(
    {"key": st.text(st.characters(exclude_characters="\0"), max_size=5), "value": data}
)
#: Column -> its types, and what may be in it; `topic` names one of two by its number.
COLUMNS: Mapping[str, tuple[tuple[pa.DataType, ...], st.SearchStrategy[Any]]] = {
    "key": ((pa.binary(), pa.large_binary()), data),
    "topic": ((pa.string(),), st.none() | st.integers(0, 1)),
    "partition": ((pa.int32(),), st.none() | st.integers(0, PARTITIONS - 1)),
    "headers": (
        tuple(
            pa.list_(pa.struct([("key", text), ("value", pa.binary())]))
            for text in (pa.string(), pa.large_string())
        ),
        st.none() | st.lists(header, max_size=3),
    ),
    "timestamp": (
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        st.none() | st.integers(0, 9_999_999).map(lambda past: STAMPED_US + past),
    ),
}  # fmt: skip
VALUES = (pa.string(), pa.large_string()), texts


@st.composite
def tables(draw: Callable[..., Any]) -> tuple[dict[str, pa.DataType], list[dict[str, Any]], int]:
    """Draw the types of some columns, rows of them, and how many rows the batch has before these."""
    names = draw(st.sets(st.sampled_from(sorted(COLUMNS))))
    kinds = {"value": VALUES} | {name: COLUMNS[name] for name in sorted(names)}
    rows = draw(st.lists(st.fixed_dictionaries({name: each[1] for name, each in kinds.items()}), max_size=20))
    types = {name: draw(st.sampled_from(each[0])) for name, each in kinds.items()}
    return types, rows, draw(st.integers(0, len(rows)))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_any_rows_become_the_records_that_they_are(
    pair: Pair, table: tuple[dict[str, pa.DataType], list[dict[str, Any]], int]
) -> None:
    types, rows, before = table
    named = [
        row | {"topic": pair.topics[row["topic"]]} if row.get("topic") is not None else row for row in rows
    ]
    columns = [pa.array([row[name] for row in named], kind) for name, kind in types.items()]
    batch = pa.RecordBatch.from_arrays(columns, names=list(types)).slice(before)
    found = pair.write([batch])
    wanted = [(row.get("partition"), _content(row, pair.topics[0])) for row in named[before:]]
    assert Counter(_content_of(each) for each in found) == Counter(content for _, content in wanted)
    placed = Counter((each.partition(), _content_of(each)) for each in found)
    assert Counter(each for each in wanted if each[0] is not None) <= placed


def _content(row: Mapping[str, Any], default_topic: str) -> tuple[object, ...]:
    """Return a row's topic, key, value, headers and milliseconds; None for those that the producer picks."""
    value, stamp = row["value"], row.get("timestamp")
    headers = tuple((each["key"], each["value"]) for each in row.get("headers") or ())
    return (
        row.get("topic") or default_topic, row.get("key"), None if value is None else value.encode(), headers,
        None if stamp is None else stamp // 1000,
    )  # fmt: skip


def _content_of(message: Message) -> tuple[object, ...]:
    kind, stamp = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    named = stamp if stamp < STAMPED_US // 1000 + 10_000 else None
    return message.topic(), message.key(), message.value(), tuple(message.headers() or ()), named


@pytest.mark.parametrize("columns", [("value",), ("value", "partition"), ("value", "timestamp")])
def test_all_rows_are_written_in_their_order_where_the_queue_is_full(
    pair: Pair, columns: tuple[str, ...]
) -> None:
    rows = [{"value": f"{number}", "partition": 1, "timestamp": STAMPED_US} for number in range(30_000)]
    of_types = {"value": pa.string(), "partition": pa.int32(), "timestamp": pa.timestamp("us", "UTC")}
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([(name, of_types[name]) for name in columns]))
    few = {"kafka.queue.buffering.max.messages": "1000"}
    found = pair.write([batch.slice(0, 10_000), batch.slice(10_000, 0), batch.slice(10_000)], **few)
    assert len(found) == 30_000
    for partition in range(PARTITIONS):
        numbers = [int(each.value() or b"") for each in found if each.partition() == partition]
        assert numbers == sorted(numbers)


@cases(
    ("topic", None, "row 4 has a null topic, and the sink no default one"),
    (
        "headers",
        [{"key": "n", "value": b""}, {"key": None, "value": b""}],
        "row 4 has a header without a name",
    ),
    ("headers", [None], "row 4 has a header without a name"),
    # By when the broker's answer about the name is there.
    ("topic", "no topic's name: it has blanks", "(Invalid|Unknown) topic"),
    ("topic", "t" * 300, "(Invalid|Unknown) topic"),
    ("partition", PARTITIONS, r"a record for rows-\w+-a-3 was (refused|not taken): Local: Unknown partition"),
    ("partition", -2, r"a record for rows-\w+-a.* was (refused|not taken): Local: Unknown partition"),
    ("value", "x" * 2_000_000, r"a record for rows-\w+-a was refused: Broker: Message size too large"),
)
def test_what_can_be_no_record_is_refused_by_its_row(
    pair: Pair, column: str, unusable: object, why: str
) -> None:
    usable = {"topic": pair.topics[0], "partition": 0, "headers": None, "value": "good"}
    kinds = {
        "value": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "headers": COLUMNS["headers"][0][0],
    }
    schema = pa.schema([(name, kinds[name]) for name in {"value", "topic", column}])
    rows = [{name: usable[name] for name in schema.names} for _ in range(4)]
    rows[3][column] = unusable
    batches = [pa.RecordBatch.from_pylist(some, schema) for some in (rows[:2], rows[2:])]
    options = {"kafka.bootstrap.servers": pair.bootstrap}
    plan = TaskPlan(translate_options(options), id_stem("rows", uuid.uuid4().hex), 1, None, 60_000, None)
    with pytest.raises(SinkError, match=f"partition 7: .*{why}"):
        write_transaction(plan, Task(7, 0), batches)
