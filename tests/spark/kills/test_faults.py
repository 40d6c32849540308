"""Proves that what else can go wrong around the sink ends exactly once, in a refusal, or in a loss report.

A transaction that times out, before its batch is decided and after; a broker that dies in the middle of the
commits; checkpoints without their ledger, ledgers without their checkpoint. `make soak` adds executors that
are killed, paused drivers, and two of them on one checkpoint. Always reported: a batch that cannot be
committed is named with its range and its transactional ids.
"""

import json
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fenceline.facts import TransactionState
from sandbox.kafka import Broker
from spark_pipeline.sink import ExactlyOnceKafkaSink, LostTransactions, SinkError, Step
from tests.brokers import create_topics
from tests.seeds import SEED
from tests.spark.kills.driver_run import Point, TaskFault, open_transactions, transactions
from tests.spark.kills.killed_query import KilledQuery, committed_records, wrong_rows
from tests.spark.kills.standalone import Standalone
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Hook = Callable[[Step, int], None]


class Crash(Exception):
    """What a hook raises: the query ends as by any exception, and whoever tidies up is put to the test."""


def crash_at(step: Step) -> Hook:
    """Return a hook that ends the query at a step."""

    def hook(at: Step, batch: int) -> None:
        if at is step:
            raise Crash(f"{step.name} of batch {batch}")

    return hook


@dataclass
class Query:
    """A query of numbers through foreachBatch, one batch per call of `add`, in this process's Spark."""

    spark: SparkSession
    bootstrap: str
    folder: Path
    name: str = field(default_factory=lambda: f"faults-{uuid.uuid4().hex[:8]}")
    produced: int = 0
    #: What the last run's sink has raised.
    error: Exception | None = None

    def __post_init__(self) -> None:
        create_topics(self.bootstrap, f"{self.name}-in", f"{self.name}-out", partitions=2)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def add(self, amount: int = 100) -> None:
        """Write so many more numbers to the input."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.produced, self.produced + amount):
            producer.produce(f"{self.name}-in", key=str(number), partition=number % 2)
        assert producer.flush(60) == 0
        self.produced += amount

    def run(
        self, on_step: Hook | None = None, change: Callable[[DataFrame], DataFrame] | None = None, **more: Any
    ) -> str:
        """Read all there is in one batch; return what the query failed with, "" when it did not."""
        sink = ExactlyOnceKafkaSink(
            checkpoint=str(self.checkpoint),
            options={"kafka.bootstrap.servers": self.bootstrap},
            topic=f"{self.name}-out",
            prefix=self.name,
            on_step=on_step,
            **more,
        )
        self.error = None

        def write(rows: DataFrame, batch: int) -> None:
            try:
                sink(rows, batch)
            except Exception as error:
                self.error = error
                raise

        rows = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", f"{self.name}-in")
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("string(key) AS key", "string(int(string(key)) * 7919 + 13) AS value")
        )
        writer = (change(rows) if change else rows).writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        try:
            writer.start().awaitTermination()
        except PySparkException as error:
            return str(self.error or error)
        return ""

    def rows(self) -> list[tuple[str, str]]:
        """Return what readers of committed records get."""
        return committed_records(self.bootstrap, f"{self.name}-out")

    def open(self) -> list[str]:
        """Return its open transactions."""
        return open_transactions(self.bootstrap, self.name)

    def differences(self) -> str:
        """Return how the output differs from each number once; "" when it does not."""
        return wrong_rows(self.rows(), self.produced)


@pytest.fixture
def query(spark: SparkSession, kafka_42: Broker, tmp_path: Path) -> Query:
    """On the shared broker, which aborts what is past its timeout within half a second."""
    made = Query(spark, kafka_42.bootstrap, tmp_path)
    made.add()
    return made


def outlasting(bootstrap: str, prefix: str) -> Callable[[DataFrame], DataFrame]:
    """Return a change of the rows: one task waits until another one's transaction has timed out."""

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            aborted = [TransactionState.COMPLETE_ABORT]
            wait_for(lambda: transactions(bootstrap, prefix, aborted), "the other task's is aborted", 120)
        yield from batches

    return lambda rows: rows.mapInArrow(each, "key string, value string")


@pytest.mark.soak
def test_a_transaction_that_ends_before_its_batch_is_refused_and_nothing_is_readable(query: Query) -> None:
    """The tasks outlast the timeout: verification finds it before anything is decided."""
    text = query.run(change=outlasting(query.bootstrap, query.name), transaction_timeout_ms=4_000)
    assert isinstance(query.error, SinkError), text
    assert "batch 0" in text
    assert "transaction_timeout_ms" in text, "it says what to do"
    assert query.rows() == []
    assert query.run() == ""
    assert query.differences() == ""
    assert query.open() == []


def test_a_prepared_batch_that_times_out_is_lost_and_may_be_accepted(query: Query) -> None:
    assert query.run() == "", "the first batch is slow, and its tasks' processes are used again"
    query.add()
    text = query.run(crash_at(Step.PREPARED), transaction_timeout_ms=8_000)
    assert text == "PREPARED of batch 1"
    lost = query.open()
    assert lost, "the decision stands, and the transactions with it"
    wait_for(lambda: not query.open(), "the broker aborts them", 60)
    query.add()
    text = query.run()
    assert isinstance(query.error, LostTransactions), text
    assert query.error.batch_id == 1
    assert sorted(query.error.transactional_ids) == sorted(lost)
    assert query.error.records == 100
    assert all(name in text for name in lost)
    assert f'"{query.name}-in":{{' in text, "the range that the batch has read"
    assert len(query.rows()) == 100, "nothing goes on behind a loss"
    assert query.run(accept_loss=[1]) == ""
    rest = sorted(int(key) for key, _ in query.rows())
    assert rest == [*range(100), *range(200, 300)], "the loss is recorded, the rest is there once"
    query.add()
    assert query.run() == "", "a loss that was accepted is not asked for again"
    assert len(query.rows()) == 300


@pytest.mark.parametrize(
    "step",
    [
        Step.WRITTEN,
        *(pytest.param(each, marks=pytest.mark.soak) for each in (Step.PREPARED, Step.ENDING, Step.ENDED)),
    ],
)
def test_a_query_that_fails_at_any_step_resumes_where_it_was(query: Query, step: Step) -> None:
    """No death, only an exception: whoever tidies up then must not roll back what is decided."""
    assert f"{step.name} of batch 0" in query.run(crash_at(step))
    query.add()
    assert query.run() == ""
    assert query.differences() == ""
    assert query.open() == []


@pytest.mark.soak
@pytest.mark.parametrize("step", [Step.WRITTEN, Step.ENDED])
def test_state_is_kept_when_spark_repeats_a_committed_batch(query: Query, step: Step) -> None:
    """Spark runs it again, to commit its state and its offsets: keys are kept, nothing is written."""

    def distinct(rows: DataFrame) -> DataFrame:
        return rows.dropDuplicates(["key"])

    assert f"{step.name} of batch 0" in query.run(crash_at(step), distinct)
    assert query.run(change=distinct) == ""
    query.produced = 0
    query.add(200)
    assert query.run(change=distinct) == ""
    assert query.differences() == ""


def remove(*paths: Path) -> None:
    """Remove files and folders, with the checksums that Hadoop keeps beside them."""
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_a_checkpoint_that_does_not_fit_its_ledger_is_refused_and_nothing_is_doubled(query: Query) -> None:
    """A fresh one would read and write everything again. Spark 4.2 itself refuses one without its identity; a
    new identity, as 4.1 would make one, is refused by the sink.
    """
    assert query.run() == ""
    whole = query.checkpoint.rename(query.folder / "whole")
    query.add()
    fresh = ("offsets", "commits", "sources")

    def lose(*names: str) -> None:
        shutil.rmtree(query.checkpoint, ignore_errors=True)
        shutil.copytree(whole, query.checkpoint)
        remove(*(query.checkpoint / name for name in names))

    def refused() -> str:
        text = query.run()
        assert isinstance(query.error, SinkError), text
        assert wrong_rows(query.rows(), 100) == ""
        return text

    lose("metadata")
    assert "metadata" in query.run().lower()
    (query.checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    assert "metadata was lost" in refused()
    for names in ("metadata", *fresh), fresh:
        lose(*names)
        assert "reset" in refused()
    lose("kafka_exactly_once")
    assert "adopt" in refused()
    assert query.run(adopt=True) == ""
    assert query.differences() == ""


@pytest.mark.soak
def test_two_drivers_on_one_checkpoint_write_each_row_once(kafka_42: Broker, tmp_path: Path) -> None:
    """Whoever is second anywhere loses: by the ledger's generation, its decisions, or Spark's own log."""
    for attempt in range(3):
        dice = random.Random(f"{SEED} two {attempt}")
        with KilledQuery(kafka_42.bootstrap, tmp_path / str(attempt), dice) as query:
            query.produce(3000)
            pair = [(query.start_driver(), query.next_run()) for _ in range(2)]
            for driver, run in pair:
                driver.begin(run)
            ends = [driver.wait() for driver, _ in pair]
            query.produce(500)
            query.run_to_end()
            query.check()
            told = [each["error"][:200] for each in query.events_of("failed")]
            print(f"FENCELINE_SEED={SEED}: ended with {ends}, {told}")


@pytest.mark.soak
@pytest.mark.parametrize("adapter", ["foreach_batch", "data_source"])
def test_a_driver_that_was_paused_and_taken_over_commits_nothing(
    kafka_42: Broker, tmp_path: Path, adapter: str
) -> None:
    """It is paused between its verification and its decision while another one does all of its work."""
    dice = random.Random(f"{SEED} {adapter} paused")
    with KilledQuery(kafka_42.bootstrap, tmp_path, dice, adapter) as query:
        query.produce(1000)
        paused = query.start_driver()
        paused.begin(query.next_run(pause=Step.VERIFIED.name))
        wait_for(lambda: query.events_of("paused"), "it stands still", 300)
        query.run_to_end()
        query.resume()
        assert paused.wait() == 1
        assert (
            "took over" in query.events_of("failed")[-1]["error"]
            or "rolled back" in query.events_of("failed")[-1]["error"]
        )
        query.produce(200)
        query.run_to_end()
        query.check()


CLUSTER = {"spark.master": "local-cluster[2,1,512]", "spark.executor.memory": "512m"}


@pytest.mark.soak
def test_an_executor_that_stops_during_its_task_is_replaced(kafka_42: Broker, tmp_path: Path) -> None:
    dice = random.Random(f"{SEED} executor")
    with KilledQuery(kafka_42.bootstrap, tmp_path, dice, conf=CLUSTER) as query:
        query.produce(1500)
        query.run_to_end(fault=TaskFault.KILLS_ITS_EXECUTOR)
        query.check()
        assert query.events_of("again")


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "500m",
}


@pytest.mark.soak
@pytest.mark.parametrize("adapter", ["foreach_batch", "data_source"])
def test_copies_of_a_task_write_its_rows_once(kafka_42: Broker, tmp_path: Path, adapter: str) -> None:
    """In each batch one task is paused with its rows written until Spark runs a copy of it on another
    host.
    """
    dice = random.Random(f"{SEED} {adapter} speculation")
    with Standalone(tmp_path) as cluster:
        conf = {"spark.master": cluster.url, **SPECULATION}
        with KilledQuery(kafka_42.bootstrap, tmp_path / "query", dice, adapter, conf=conf) as query:
            query.produce(1500)
            query.run_to_end(fault=TaskFault.WAITS)
            query.check()
            assert query.events_of("again"), "Spark has run a copy"


@pytest.mark.soak
@pytest.mark.parametrize("adapter", ["foreach_batch", "data_source"])
def test_a_driver_killed_before_a_loss_reports_it_at_each_start(
    kafka_42: Broker, tmp_path: Path, adapter: str
) -> None:
    """The same in processes of their own: kill -9 after the decision, and a start that comes too late."""
    dice = random.Random(f"{SEED} {adapter} lost")
    with KilledQuery(kafka_42.bootstrap, tmp_path, dice, adapter) as query:
        query.run_until_killed(Point.PREPARED, survive=1, transaction_timeout_ms=30_000)
        wait_for(lambda: not open_transactions(query.bootstrap, query.name), "the broker aborts them", 120)
        for _ in range(2):
            driver = query.driver()
            driver.begin(query.next_run())
            assert driver.wait() == 1
            told = [each["error"] for each in query.events_of("failed")]
            assert "accept_loss" in told[-1]
            assert "batch" in told[-1]
