"""Proves on real Spark that both adapters write what Spark's own Kafka sink writes, column by column, and the
timestamps too, that the ledger's counts and digests are of what was written, that a checkpoint may be on
HDFS, that a stop amid a batch leaves nothing open, and that the adapters refuse what they must."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from fenceline.spark.records import Decided, DecisionOutcome, SinkTransaction
from sandbox.kafka import Broker
from spark_pipeline.digests import with_digests
from spark_pipeline.sink import ExactlyOnceKafkaSink, Refused, Step, register
from spark_pipeline.sink.columns import from_rows
from spark_pipeline.sink.hadoop import open_from_spark
from spark_pipeline.sink.ledger import open_ledger
from tests.brokers import create_topics
from tests.cases import cases
from tests.spark.kills.driver_run import open_transactions
from tests.spark.queries import DEADLINE_S, ran_to
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

#: One of three rows has a null key, one of five a null value, one of two no headers; rows without a key name
#: their partition, as Kafka would pick any for them.
COLUMNS = (
    "CASE WHEN value % 3 > 0 THEN concat('schlüssel-', value) END AS key",
    "CASE WHEN value % 5 > 0 THEN cast(concat('value ', value) AS BINARY) END AS value",
    "CASE WHEN value % 3 = 0 THEN cast(value % 4 AS INT) END AS partition",
    "CASE WHEN value % 2 = 0 THEN array(struct('n' AS key, cast(cast(value AS STRING) AS BINARY) AS value), "
    "struct('n' AS key, cast(NULL AS BINARY) AS value)) END AS headers",
)
#: An hour ago: much older records would be deleted by the topic's retention.
STAMPED_MS = time.time_ns() // 1_000_000 - 3_600_000
STAMP = f"CASE WHEN value % 7 > 0 THEN timestamp_millis({STAMPED_MS} + value) END AS timestamp"
BATCHES, ROWS = 2, 300


class Place:
    """A topic and a checkpoint of one test."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.bootstrap = spark, broker.bootstrap
        self.topic = f"spark-sink-{uuid.uuid4().hex[:8]}"
        self.checkpoint = folder / self.topic
        create_topics(self.bootstrap, self.topic, partitions=4)

    def rows(self, *columns: str) -> DataFrame:
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
        return source.option("numPartitions", 2).load().selectExpr(*columns)

    def foreach_batch(self, rows: DataFrame, **settings: Any) -> StreamingQuery:
        options = {"kafka.bootstrap.servers": self.bootstrap}
        sink = ExactlyOnceKafkaSink(checkpoint=str(self.checkpoint), options=options, **settings)
        writer = rows.writeStream.queryName(self.topic).foreachBatch(sink)
        return writer.option("checkpointLocation", self.checkpoint.as_uri()).start()

    def data_source(self, rows: DataFrame, **settings: str) -> StreamingQuery:
        register(self.spark)
        return self.format(rows, "kafka_exactly_once", **settings)

    def format(self, rows: DataFrame, name: str, **settings: str) -> StreamingQuery:
        writer = rows.writeStream.queryName(self.topic).format(name).options(**settings)
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def records(self) -> list[tuple[Any, ...]]:
        """Return the records of the first batches as Spark reads them: key, value, partition, headers, ms."""
        options = {
            "subscribe": self.topic, "includeHeaders": "true", "kafka.isolation.level": "read_committed",
            "kafka.bootstrap.servers": self.bootstrap,
        }  # fmt: skip
        found = self.spark.read.format("kafka").options(**options).load()
        text = "unix_millis(timestamp) AS ms", "timestampType AS kind"
        rows = found.selectExpr("key", "value", "partition", "headers", *text).collect()
        return sorted(map(tuple, rows), key=repr)

    def open_ids(self) -> list[str]:
        return open_transactions(self.bootstrap, self.topic)


@pytest.fixture
def place(spark: SparkSession, kafka_42: Broker, tmp_path: Path) -> Callable[[], Place]:
    return lambda: Place(spark, kafka_42, tmp_path)


@pytest.fixture(autouse=True)
def no_query_left(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def run(query: StreamingQuery, batches: int = BATCHES) -> None:
    """Let a query finish its first batches, then stop it."""
    ran_to(query, batches - 1)


def of_first_batches(records: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return keyed and numbered records of the batches that every query has finished, without their times."""
    wanted = {f"schlüssel-{number}".encode() for number in range(BATCHES * ROWS)}
    return [each[:4] for each in records if bytes(each[0] or b"") in wanted]


def test_both_adapters_write_the_same_records_as_spark_s_own_sink(place: Callable[[], Place]) -> None:
    theirs, ours, source = place(), place(), place()
    run(theirs.format(theirs.rows(*COLUMNS), "kafka", topic=theirs.topic))
    run(ours.foreach_batch(ours.rows(*COLUMNS, STAMP), topic=ours.topic))
    topic = f"'{source.topic}' AS topic"
    run(source.data_source(source.rows(*COLUMNS, STAMP, topic)))
    expected = of_first_batches(theirs.records())
    assert len(expected) == BATCHES * ROWS * 2 // 3
    for each in ours, source:
        records = each.records()
        assert of_first_batches(records) == expected
        # Whole batches, null keys and null values among them: none missing, none twice.
        assert len(records) % ROWS == 0
        assert {bytes(row[1] or b"") for row in records if row[0] is None and row[1] is not None} >= {
            b"value %d" % number for number in range(BATCHES * ROWS) if number % 3 == 0 and number % 5 > 0
        }
        stamps = {bytes(row[0]).decode(): row[4] for row in records if row[0] is not None}
        assert stamps["schlüssel-1"] == STAMPED_MS + 1
        assert stamps["schlüssel-599"] == STAMPED_MS + 599
        # No timestamp: the producer's clock.
        assert stamps["schlüssel-7"] > STAMPED_MS + 3_000_000
        state = open_ledger(str(each.checkpoint)).read_state()
        committed = {done.batch_id for done in state.done if done.outcome is DecisionOutcome.COMMITTED}
        assert committed >= set(range(BATCHES))
        assert state.decisions[0].run_id
        assert state.decisions[0].transactions[0].transactional_id.startswith(f"{each.topic}-")
        assert each.open_ids() == []


@pytest.mark.matrix
def test_a_checkpoint_on_hdfs_keeps_the_ledger_over_a_restart(
    spark: SparkSession, place: Callable[[], Place], hdfs_root: str
) -> None:
    here = place()
    checkpoint = f"{hdfs_root}/größer als 1/{here.topic}"
    for batches in BATCHES, BATCHES * 2:
        options = {"kafka.bootstrap.servers": here.bootstrap}
        sink = ExactlyOnceKafkaSink(checkpoint=checkpoint, options=options, topic=here.topic)
        writer = here.rows("cast(value AS STRING) AS value").writeStream.queryName(here.topic)
        run(writer.foreachBatch(sink).option("checkpointLocation", checkpoint).start(), batches)
    values = sorted(int(row[1]) for row in here.records())
    assert len(values) >= BATCHES * 2 * ROWS
    assert values == list(range(len(values)))
    names = open_from_spark(spark, f"{checkpoint}/kafka_exactly_once", "").file_names()
    assert {f"{batch}.0.{what}" for batch in range(BATCHES) for what in ("decision", "done")} <= set(names)
    assert here.open_ids() == []


def slow_rows(here: Place, fate: str = "java_method('java.lang.Thread', 'sleep', 200L)") -> DataFrame:
    """Return rows of two tasks: one is done at once, and keeps its transaction open while the other is slow.

    `fate` is what happens to each row of the slow one.
    """
    slow = here.rows("cast(value AS STRING) AS value", f"CASE WHEN value % 2 = 1 THEN {fate} END AS slow")
    return slow.where("slow IS NULL OR slow = 'null'").drop("slow")


def test_a_stop_during_a_batch_leaves_no_transaction_open(place: Callable[[], Place]) -> None:
    here = place()
    query = here.foreach_batch(slow_rows(here), topic=here.topic)
    wait_for(lambda: here.open_ids(), "a task has begun its transaction", DEADLINE_S)
    query.stop()
    refuse_all_of_it(here)


@pytest.mark.matrix
def test_transactions_left_open_by_a_stopped_data_source_end_at_the_next_start(
    place: Callable[[], Place],
) -> None:
    """Spark interrupts its thread, and so at times the call that would abort the batch (docs/sink.md)."""
    here = place()
    query = here.data_source(slow_rows(here), topic=here.topic)
    left = wait_for(lambda: here.open_ids(), "a task has begun its transaction", DEADLINE_S)
    query.stop()
    assert here.records() == []
    run(here.data_source(here.rows("cast(value AS STRING) AS value"), topic=here.topic))
    assert not set(left) & set(here.open_ids())
    values = sorted(int(row[1]) for row in here.records())
    assert values == list(range(len(values)))
    assert len(values) >= BATCHES * ROWS


@pytest.mark.parametrize("adapter", ["foreach_batch", "data_source"])
def test_a_task_that_fails_leaves_no_transaction_open(place: Callable[[], Place], adapter: str) -> None:
    here = place()
    # Only its last row fails: the other task is done by then, on any machine.
    sleep = "java_method('java.lang.Thread', 'sleep', 20L)"
    fate = f"CASE WHEN value < 299 THEN {sleep} ELSE raise_error('wrong') END"
    query = getattr(here, adapter)(slow_rows(here, fate), topic=here.topic)
    with pytest.raises(StreamingQueryException, match="wrong"):
        run(query)
    refuse_all_of_it(here)


def refuse_all_of_it(here: Place) -> None:
    """Check that the first batch was aborted, and that nothing of it is visible or open."""
    wait_for(lambda: not here.open_ids(), "it is aborted", DEADLINE_S)
    assert here.records() == []
    decided = open_ledger(str(here.checkpoint)).read_state().done
    assert [each.outcome for each in decided] == [DecisionOutcome.ABORTED]


@cases(
    ({"nonsense": "1"}, 'option "nonsense" is none of the sink'),
    ({"transaction_timeout_ms": "900001"}, "take 900000 at most"),
    # Spark 4.2 refuses it itself; where it does not, the sink does.
    ({"asyncProgressTrackingEnabled": "true"}, "(?i)async progress|asyncProgressTracking"),
    ({"kafka.acks": "1"}, "acknowledgements of all replicas"),
)
def test_the_data_source_refuses_unsupported_queries(
    place: Callable[[], Place], settings: dict[str, str], reason: str
) -> None:
    here = place()
    with pytest.raises(Exception, match=reason):
        run(here.data_source(here.rows("cast(value AS STRING) AS value"), topic=here.topic, **settings))
    assert not (here.checkpoint / "kafka_exactly_once").exists()


def test_foreach_batch_refuses_a_checkpoint_that_is_not_its_own(place: Callable[[], Place]) -> None:
    here, other = place(), place()
    options = {"kafka.bootstrap.servers": here.bootstrap}
    sink = ExactlyOnceKafkaSink(checkpoint=str(here.checkpoint), options=options, topic=here.topic)
    rows = here.rows("cast(value AS STRING) AS value")
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(other.checkpoint)).start()
    with pytest.raises(StreamingQueryException, match=r"own checkpointLocation is file:.*Leave it out of"):
        run(query)


@pytest.mark.parametrize("adapter", ["foreach_batch", "data_source"])
def test_the_checkpoint_is_the_query_s_own(place: Callable[[], Place], tmp_path: Path, adapter: str) -> None:
    """Of a session's default, which Spark gives a query of that name; options as Spark's users write them."""
    here = place()
    options = {"kafka.bootstrap.servers": here.bootstrap, "Topic": here.topic, "includeHeaders": "false"}
    here.spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        writer = here.rows(*COLUMNS).writeStream.queryName(here.topic)
        if adapter == "foreach_batch":
            run(writer.foreachBatch(ExactlyOnceKafkaSink(options=options)).start(), 1)
        else:
            register(here.spark)
            run(writer.format("kafka_exactly_once").options(**options).start(), 1)
    finally:
        here.spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert open_ledger(str(tmp_path / here.topic)).read_state().done[0].outcome is DecisionOutcome.COMMITTED
    assert {row[3] for row in here.records()} == {None}, "no headers"


def test_foreach_batch_is_only_for_queries(spark: SparkSession) -> None:
    sink = ExactlyOnceKafkaSink(checkpoint="/x", options={"kafka.bootstrap.servers": "x:1"}, topic="t")
    with pytest.raises(Refused, match="outside of a streaming query"):
        sink(spark.range(1).selectExpr("cast(id AS STRING) AS value"), 0)


@pytest.mark.matrix
def test_steps_are_reported_and_a_new_run_takes_over_from_the_last(place: Callable[[], Place]) -> None:
    here = place()
    steps: list[tuple[Step, int]] = []
    for number in range(2):
        query = here.foreach_batch(
            here.rows("cast(value AS STRING) AS value"),
            topic=here.topic,
            on_step=lambda step, batch: steps.append((step, batch)),
        )
        run(query, number + 1)
    assert [step for step, batch in steps if batch == 0] == list(Step)
    assert open_ledger(str(here.checkpoint)).read_names().generation == 2


def test_rows_and_arrow_batches_are_the_same_records(spark: SparkSession) -> None:
    rows = spark.range(40).selectExpr("id AS value").selectExpr(*COLUMNS, STAMP, "'t' AS topic")
    plain = pa.Table.from_batches(from_rows(iter(rows.collect())))
    assert plain == rows.toArrow().cast(plain.schema)
    assert plain.num_rows == 40


def ledger_transactions(place: Place) -> list[SinkTransaction]:
    decisions = open_ledger(str(place.checkpoint)).read_state().decisions
    prepared = [each for each in decisions if each.decided is Decided.PREPARED]
    return [each for decision in prepared for each in decision.transactions]


def sum_digests(digests: Iterable[str]) -> str:
    halves = zip(*((int(digest[:16], 16), int(digest[16:], 16)) for digest in digests), strict=True)
    return "".join(f"{sum(half) % 2**64:016x}" for half in halves)


def digest_of(rows: DataFrame) -> str:
    """Return the digest of records that were read back, summed by Spark."""
    hashed = with_digests(rows)
    # As decimals: sums of BIGINT fail where they overflow (ANSI mode).
    sums = [f.sum(f.col(name).cast("decimal(20,0)")) for name in hashed.columns[-2:]]
    return "".join(f"{int(total or 0) % 2**64:016x}" for total in hashed.select(*sums).first() or ())


@pytest.mark.matrix
def test_digests_of_the_ledger_equal_those_of_the_records_read_back(
    place: Callable[[], Place], spark: SparkSession
) -> None:
    here = place()
    run(here.foreach_batch(here.rows(*COLUMNS[:2]), topic=here.topic, digests=True))
    written = ledger_transactions(here)
    options = {
        "subscribe": here.topic, "kafka.isolation.level": "read_committed",
        "kafka.bootstrap.servers": here.bootstrap,
    }  # fmt: skip
    records = spark.read.format("kafka").options(**options).load()
    assert len(written) >= 2 * BATCHES
    assert sum_digests(each.digest or "" for each in written) == digest_of(records)
    fewer = records.where("NOT (partition = 0 AND offset = 0)")
    swapped = records.selectExpr("value AS key", "key AS value")
    assert len({digest_of(each) for each in (records, fewer, swapped, records.union(records))}) == 4
    assert digest_of(records.where("false")) == "0" * 32


@pytest.mark.matrix
def test_both_adapters_note_records_by_partition_unless_they_are_not_to(place: Callable[[], Place]) -> None:
    counted, data_source, without = place(), place(), place()
    run(counted.foreach_batch(counted.rows(*COLUMNS[:2]), topic=counted.topic))
    run(data_source.data_source(data_source.rows(*COLUMNS[:2]), topic=data_source.topic))
    run(without.foreach_batch(without.rows(*COLUMNS[:2]), topic=without.topic, partition_counts=False))
    for each in (*ledger_transactions(counted), *ledger_transactions(data_source)):
        assert sum(found.records for found in each.written or ()) == each.records == ROWS / 2
        assert each.digest is None
    assert {each.written for each in ledger_transactions(without)} == {None}
