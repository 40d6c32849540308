"""A query without Spark: a checkpoint as Spark writes it, tasks that are function calls, a reader."""

import json
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from fenceline.decode.ledger import FOLDER
from fenceline.facts import TransactionState
from fenceline.kafka.reconcile import Described
from fenceline.spark.records import SinkTransaction
from spark_pipeline.sink.cluster import PartitionCounts
from spark_pipeline.sink.coordinator import Attempt, SinkCoordinator
from spark_pipeline.sink.ledger import LedgerFolder
from spark_pipeline.sink.options import translate_options
from spark_pipeline.sink.startup_checks import SinkSettings
from spark_pipeline.sink.steps import Observer
from spark_pipeline.sink.storage import LocalStorage
from spark_pipeline.sink.task.writer import Task, TaskPlan, admin_for, write_transaction
from tests.spark.topic_records import read_messages

TIMEOUT_MS = 60_000


class FakeQuery:
    """One query with its checkpoint; each `driver` is a process that runs it."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.folder, self.topic = folder, topic
        self.options = {"kafka.bootstrap.servers": bootstrap}
        self.query_id = str(uuid.uuid4())
        for name in "offsets", "commits":
            (folder / name).mkdir(parents=True)
        self.write_metadata(self.query_id)

    @property
    def ledger(self) -> LedgerFolder:
        return LedgerFolder(LocalStorage(self.folder))

    def files(self) -> set[str]:
        return {path.name for path in (self.folder / FOLDER).iterdir()} if self.has_ledger() else set()

    def has_ledger(self) -> bool:
        return (self.folder / FOLDER).exists()

    def write_metadata(self, query_id: str) -> None:
        (self.folder / "metadata").write_text(json.dumps({"id": query_id}))

    def plan(self, batch_id: int, *, control: bool = False, end: int | None = None) -> None:
        """Write `offsets/N` as Spark does before a batch runs."""
        head = {"batchTimestampMs": 1} | ({"controlBatchInfo": {"operationType": 1}} if control else {})
        line = json.dumps({self.topic: {"0": 10 * (batch_id + 1) if end is None else end}})
        (self.folder / "offsets" / str(batch_id)).write_text(f"v1\n{json.dumps(head)}\n{line}")

    def driver(
        self,
        batch_id: int,
        *,
        timeout_ms: int = TIMEOUT_MS,
        accept_loss: Iterable[int] = (),
        adopt: bool = False,
        prefix: str | None = None,
        observer: Observer | None = None,
    ) -> SinkCoordinator:
        """Start a driver that is asked for this batch first."""
        settings = SinkSettings(
            prefix or self.topic,
            prefix is not None,
            timeout_ms,
            accept_loss=frozenset(accept_loss),
            adopt=adopt,
            # Its tasks are calls that have returned.
            dying_s=0.0,
        )
        coordinator = self._coordinator(settings, observer)
        if not (self.folder / "offsets" / str(batch_id)).exists():
            self.plan(batch_id)
        coordinator.open(self.query_id, f"run-{uuid.uuid4().hex[:8]}", batch_id)
        return coordinator

    def finisher(self, observer: Observer | None = None) -> SinkCoordinator:
        """Return a sink that is made while its query has yet to start."""
        return self._coordinator(SinkSettings(self.topic, False, TIMEOUT_MS), observer)

    def _coordinator(self, settings: SinkSettings, observer: Observer | None) -> SinkCoordinator:
        admin = admin_for(translate_options(self.options).connection)
        counts = PartitionCounts(translate_options(self.options).connection)
        return SinkCoordinator(settings, LocalStorage(self.folder), admin, observer, counts)

    def begin(self, driver: SinkCoordinator, batch_id: int) -> Attempt:
        """Begin a batch that is not committed."""
        if not (self.folder / "offsets" / str(batch_id)).exists():
            self.plan(batch_id)
        attempt = driver.begin(batch_id)
        assert attempt is not None
        return attempt

    def run_task(
        self, attempt: Attempt, partition: int, values: Iterable[str], number: int = 0
    ) -> SinkTransaction | None:
        """Run one attempt of a task; it leaves its transaction open."""
        plan = TaskPlan(
            translate_options(self.options), attempt.stem, attempt.generation, attempt.lease,
            attempt.timeout_ms, self.topic,
        )  # fmt: skip
        return write_transaction(plan, Task(partition, number), batches_of(values))

    def run_tasks(self, attempt: Attempt, tasks: int = 2) -> list[SinkTransaction]:
        """Run the tasks of a batch; each writes two records that name batch and partition."""
        written = (
            self.run_task(attempt, number, values_of(attempt.batch_id, number)) for number in range(tasks)
        )
        return [each for each in written if each is not None]

    def committed(self) -> list[str]:
        """Return the values that readers of committed records get, up to the last stable offset; sorted."""
        return read(self.options["kafka.bootstrap.servers"], self.topic)


def batches_of(values: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task one by one, as Spark gives them to the sink."""
    for value in values:
        yield pa.RecordBatch.from_arrays([pa.array([value])], names=["value"])


def values_of(batch_id: int, *partitions: int) -> list[str]:
    """Return what the tasks of a batch write."""
    return [f"{batch_id}-{partition}-{number}" for partition in partitions for number in range(2)]


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """Return the values of a topic up to the end that this isolation level has now, sorted."""
    return sorted((each.value() or b"").decode() for each in read_messages(bootstrap, topic, isolation))


def states(query: FakeQuery, *ids: str) -> list[TransactionState]:
    admin = admin_for(translate_options(query.options).connection)
    said = admin.describe_transactions(ids)
    return [each.state for each in said.values() if isinstance(each, Described)]


def open_ids(query: FakeQuery) -> list[str]:
    admin = admin_for(translate_options(query.options).connection)
    return [
        name
        for name in admin.list_transactions([TransactionState.ONGOING]).entries
        if name.startswith(query.topic)
    ]
