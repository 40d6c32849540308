"""A query that runs on and on while brokers come and go: numbers in, and each once out."""

import random
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_pipeline.sink import ExactlyOnceKafkaSink, register
from tests.brokers import create_topics
from tests.spark.kills.driver_run import open_transactions
from tests.spark.kills.killed_query import committed_records, wrong_rows
from tests.waiting import wait_for

#: Numbers a second that are written while the query runs.
RATE = 200
PARTITIONS = 3
DEADLINE_S = 240
#: How long Spark's own source waits for brokers; the sink waits for a minute by itself.
SOURCE = {"kafka.default.api.timeout.ms": "180000", "kafka.request.timeout.ms": "30000"}


class Numbers(threading.Thread):
    """Writes numbers to a topic, each once, until it is told to stop; brokers may be away meanwhile."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 50, "log_level": 0,
            "reconnect.backoff.max.ms": 1_000,
        })  # fmt: skip
        self._topic, self._ended = topic, threading.Event()
        self.produced = 0

    def run(self) -> None:
        while not self._ended.wait(0.1):
            for number in range(self.produced, self.produced + RATE // 10):
                self._producer.produce(self._topic, key=str(number), partition=number % PARTITIONS)
            self.produced += RATE // 10
            self._producer.poll(0)

    def end(self) -> int:
        """Stop, and wait until all are at their brokers; return how many there are."""
        self._ended.set()
        self.join()
        assert self._producer.flush(120) == 0
        return self.produced


class RunningQuery:
    """A query of numbers through the sink, and its input: `with RunningQuery(spark, …) as query`."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, folder: Path, adapter: str, *, replicas: int = 1
    ) -> None:
        self.bootstrap, self._adapter = bootstrap, adapter
        self.name = f"outages-{uuid.uuid4().hex[:8]}"
        create_topics(
            bootstrap, f"{self.name}-in", f"{self.name}-out", partitions=PARTITIONS, replicas=replicas
        )
        self._numbers = Numbers(bootstrap, f"{self.name}-in")
        self._spark, self._checkpoint = spark, str(folder / self.name)

    def __enter__(self) -> Self:
        self._numbers.start()
        self.query = self._start()
        self.await_batches(2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.query.stop()

    def _start(self) -> StreamingQuery:
        rows = self._spark.readStream.format("kafka").options(**SOURCE, subscribe=f"{self.name}-in")
        rows = rows.options(startingOffsets="earliest", **{"kafka.bootstrap.servers": self.bootstrap})
        writer = (
            rows.load()
            .selectExpr("string(key) AS key", "string(int(string(key)) * 7919 + 13) AS value")
            .writeStream.queryName(self.name)
            .option("checkpointLocation", self._checkpoint)
        )
        options: dict[str, Any] = {"kafka.bootstrap.servers": self.bootstrap, "topic": f"{self.name}-out"}
        if self._adapter == "foreach_batch":
            return writer.foreachBatch(ExactlyOnceKafkaSink(options=options)).start()
        register(self._spark)
        return writer.format("kafka_exactly_once").options(**options).start()

    @property
    def batch(self) -> int:
        """The newest batch that is done; -1 before the first."""
        if (failed := self.query.exception()) is not None:
            raise failed
        assert self.query.isActive
        progress = self.query.lastProgress
        return -1 if progress is None else int(progress["batchId"])

    def await_batches(self, amount: int) -> None:
        """Wait until so many more batches are done."""
        wanted = self.batch + amount
        wait_for(lambda: self.batch >= wanted, f"batch {wanted} of {self.name}", DEADLINE_S)

    def await_moment(self, dice: random.Random) -> None:
        """Wait until a moment at random in the batches to come."""
        self.await_batches(1)
        end = time.monotonic() + dice.uniform(0, 1)
        wait_for(lambda: time.monotonic() > end, "a moment at random", 60)

    def check(self) -> int:
        """End the input and the query; compare what was written with what was read, return how many."""
        amount = self._numbers.end()
        self.query.processAllAvailable()
        assert self.query.isActive
        self.query.stop()
        wrong = wrong_rows(committed_records(self.bootstrap, f"{self.name}-out"), amount)
        assert not wrong, wrong
        wait_for(lambda: not open_transactions(self.bootstrap, self.name), "nothing is left open")
        return amount
