"""A real Flink job beside a broker, killed between the completion of a checkpoint and its commits; what is
read of its checkpoints is compared with what Flink itself reads of them."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from django.test import override_settings

from collectors.flink import FlinkCollector
from dashboard.config import CheckpointRoot, ClusterConfig, Config
from dashboard.engines import store as store
from dashboard.models import FlinkJob
from dashboard.runtime import collector_store, leases, loop
from fenceline.engines.flink.records import (
    Committable,
    FlinkCheckpoint,
    FlinkJobObservation,
    TransactionOwnership,
)
from fenceline.facts import TransactionState
from fenceline.kafka.reconcile import Described
from sandbox.engines.flink import FlinkProcess
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java import flink_state
from tests.java.flink_state import FlinkStateReader, ReadCommittable, ReadWriter
from tests.kafka.action_worker import CLUSTER
from tests.kafka.driven import take_lease
from tests.kafka.topic_records import committed_values
from tests.waiting import wait_for
from transaction_admin.kafka_python import TransactionAdmin

#: How long to wait for a kill in the right moment, in seconds.
_PATIENCE_S = 90.0
PARTITIONS = 3


class FlinkStage:
    """Two topics, a job that copies one to the other, and Kafka's admin protocol as the oracle."""

    def __init__(self, broker: Broker, folder: Path, version: str, *, pooling: bool = False) -> None:
        name = uuid.uuid4().hex[:8]
        self.broker, self.root, self.version = broker, folder / "checkpoints", version
        self.source, self.target, self.prefix = f"in-{name}", f"out-{name}", f"copy-{name}"
        create_topics(broker.bootstrap, self.source, self.target, partitions=PARTITIONS)
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})
        self.fed = 0
        self._admin = TransactionAdmin({"bootstrap.servers": broker.bootstrap}, 10.0)
        self._collector = FlinkCollector([CheckpointRoot(str(self.root), CLUSTER)])
        self._made = 0
        self._how = {
            "version": version,
            "bootstrap": broker.bootstrap,
            "source": self.source,
            "target": self.target,
            "prefix": self.prefix,
            "pooling": pooling,
            "interval_ms": 200,
        }

    def job(self, **changes: Any) -> FlinkProcess:
        """Return a job that is not started yet; all share the folder of checkpoints."""
        return FlinkProcess(folder=self.root, **self._how | changes)

    def feed(self, number: int = 60) -> None:
        """Write so many new values into the source, and wait until they are there."""
        for value in range(self.fed, self.fed + number):
            self._producer.produce(self.source, str(value), partition=value % PARTITIONS)
        self.fed += number
        assert self._producer.flush(30) == 0

    def copied(self) -> Sequence[int]:
        """Return the values that a read_committed consumer gets of the target, up to its end, sorted."""
        return sorted(map(int, committed_values(self.broker.bootstrap, self.target)))

    def describe(self, names: Sequence[str]) -> Mapping[str, Described]:
        """Return what the coordinators have of ids."""
        found = self._admin.describe_transactions(names)
        return {name: each for name, each in found.items() if isinstance(each, Described)}

    def open_commits(self) -> Sequence[Committable]:
        """Return what the newest checkpoint decided to commit and its coordinator has open as it says."""
        observed = self.observe()
        newest = observed[0].checkpoints[0] if observed else None
        if not isinstance(newest, FlinkCheckpoint):
            return ()
        now = self.describe([each.transactional_id for each in newest.committables])
        return [each for each in newest.committables if _is_open(each, now.get(each.transactional_id))]

    def kill_before_commit(self, job: FlinkProcess) -> Sequence[Committable]:
        """Kill a running job where a completed checkpoint's transactions are open; return those.

        The job is stopped as soon as a checkpoint is there, and goes on where its commits were faster.
        """
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            self.feed(20)
            self._wait_for_new(end)
            job.pause()
            if self.open_commits():
                job.kill()
                # What was on its way to the broker has arrived when its connections are closed.
                return wait_for(self._settled, "commits that stay open or end", 10, until=_is_known)
            job.resume()
        raise AssertionError(f"no commit stayed open within {_PATIENCE_S:g} s")

    def poll(self, *, times: int = 2) -> Sequence[FlinkJob]:
        """Poll the checkpoints with the collector and save them; return the rows."""
        lease = take_lease(CLUSTER, store.NAME)
        for _ in range(times):
            found = self._collector.poll(loop.now_ms(), every_s=0)
            store.save_jobs(lease, found.observations, found.searched, gaps=found.gaps, now_ms=loop.now_ms())
        leases.release(lease)
        return list(FlinkJob.objects.order_by("pk"))

    @contextmanager
    def configured(self) -> Iterator[None]:
        """Configure the cluster and the root of checkpoints."""
        collector_store.sync_clusters([CLUSTER])
        cluster = ClusterConfig(CLUSTER, {"bootstrap.servers": self.broker.bootstrap}, True)
        root = CheckpointRoot(str(self.root), CLUSTER)
        with override_settings(FENCELINE=Config(clusters={CLUSTER: cluster}, flink_checkpoints=[root])):
            yield

    def newest_checkpoint(self) -> Path:
        """Return the folder of the newest completed checkpoint of any job."""
        return max(self.root.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns).parent

    def observe(self) -> Sequence[FlinkJobObservation]:
        """Return what the collector reads of all jobs, the one with the newest checkpoint first."""
        found = self._collector.poll(loop.now_ms(), every_s=0).observations
        return sorted(found, key=lambda each: each.checkpoints[0].completed_ms or 0, reverse=True)

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def _settled(self) -> Sequence[Committable] | None:
        """Return what stays open, None while that differs from what was open a moment before."""
        before = self.open_commits()
        return before if before == self.open_commits() else None

    def _wait_for_new(self, end: float) -> None:
        """Wait for a checkpoint that was not there, without a rest: its commits follow at once."""
        known = set(self.root.glob("*/chk-*/_metadata"))
        while time.monotonic() < end and not set(self.root.glob("*/chk-*/_metadata")) - known:
            pass


def _is_open(committable: Committable, now: Described | None) -> bool:
    return now is not None and (now.state, now.producer_id, now.producer_epoch) == (
        TransactionState.ONGOING,
        committable.producer_id,
        committable.producer_epoch,
    )


def _is_known(found: Sequence[Committable] | None) -> bool:
    return found is not None


def read_checkpoints(stage: FlinkStage, jobs: int | None = None) -> Sequence[FlinkCheckpoint]:
    """Return the checkpoints and savepoints of all jobs, or of the newest, as the collector reads them.

    Each must be readable.
    """
    found = [each for job in stage.observe()[:jobs] for each in job.checkpoints]
    read = [each for each in found if isinstance(each, FlinkCheckpoint)]
    assert read
    assert len(read) == len(found), found
    return read


def compare_checkpoint(checkpoint: FlinkCheckpoint, reader: FlinkStateReader) -> set[ReadCommittable]:
    """Assert that Flink reads the same of a checkpoint; return its committables."""
    path = Path(checkpoint.path.removeprefix("file://"))
    committables = {ReadCommittable(*each[:3], each.checkpoint_id or 0) for each in checkpoint.committables}
    assert committables == set(reader.committables(path)), path
    writers = [
        ReadWriter(*each[:3], _shown(each.ownership, each.subtask), each.precommitted)
        for each in checkpoint.writers
    ]
    assert sorted(writers) == sorted(reader.writers(path)), path
    assert {each.operator for each in checkpoint.committables} <= _names(reader, flink_state.COMMITTER)
    assert {each.operator for each in checkpoint.writers} <= _names(reader, flink_state.WRITER)
    return committables


def _shown(ownership: TransactionOwnership, subtask: int) -> str:
    """Return Flink's text of an ownership, "" where the connector does not record it."""
    return ownership.name if subtask >= 0 else ""


def _names(reader: FlinkStateReader, uid: str) -> set[str]:
    """Return the names by which an operator may be read: its uid, or its id before Flink 2.0."""
    return {uid, reader.operator_id(uid)}
