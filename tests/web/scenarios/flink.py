"""Flink jobs with commits of every fate."""

from dashboard.models import Cluster, FlinkJob
from fenceline.facts import TransactionState
from tests.web import factories


def flink_job_of_every_fate(of: Cluster) -> FlinkJob:
    """Return a job whose checkpoint decided four commits: open, committed, aborted, of an unknown id."""
    factories.collectors(of, "flink")
    committed, aborted = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
    factories.transaction(of, "copy-0-41", age_ms=100_000, timeout_ms=600_000)
    factories.transaction(of, "copy-1-41", committed, producer_epoch=18)
    factories.transaction(of, "copy-2-41", aborted, producer_epoch=18)
    return factories.flink_job(of, [factories.committable(f"copy-{subtask}-41") for subtask in range(4)])


def job_of_older_sink(of: Cluster) -> FlinkJob:
    """Return a job with `FlinkKafkaProducer`: a pending commit, a superseded one, two other open ids."""
    job = factories.flink_job(
        of, [factories.committable("copy-3"), factories.committable("copy-6")], prefix="copy-"
    )
    pools = [[f"copy-{number}" for number in range(first, first + 5)] for first in (0, 5)]
    writers = [
        ["copy-", subtask, 2, "pool_of_producer", [], "out", pool, pool[-1], next_free]
        for (subtask, pool), next_free in zip(enumerate(pools), (10, None), strict=True)
    ]
    job.flinkcheckpointrecord_set.update(writers=writers)
    factories.transaction(of, "copy-3", age_ms=100_000, timeout_ms=600_000)
    factories.transaction(of, "copy-6", producer_epoch=19, age_ms=1_000)
    for name in ("copy-4", "copy-30", "copying-4", "copy-4-4"):
        factories.transaction(of, name, age_ms=400_000, timeout_ms=900_000)
    return job


def busy_flink_jobs(of: Cluster) -> None:
    """Fill a cluster with jobs: one of every fate, one with nothing pending, one that cannot be read.

    Beside them a JobManager's report of the first, and a failed task of a connector.
    """
    job = flink_job_of_every_fate(of)
    factories.flink_run(job)
    factories.connector(of)
    topics = {"__debezium-heartbeat.shop": [0], "shop.public.orders": [0, 1]}
    factories.transaction(of, "connect-cluster-cdc", TransactionState.COMPLETE_COMMIT)
    factories.transaction(of, "cdc-mysql-source-0", age_ms=400_000, partitions=topics)
    factories.flink_checkpoint(job, "chk-40", completed_ms=factories.now_ms() - 150_000)
    factories.transaction(of, "copy-0-42")
    factories.transaction(of, "copy-5-39", age_ms=400_000, timeout_ms=900_000)
    factories.flink_job(of, ident="idle@1", prefix="orders-enrichment-with-a-long-name", age_ms=900_000)
    reason = "s3://checkpoints/broken/chk-7/_metadata cannot be decoded (version: 9): update Fenceline"
    broken = factories.flink_job(of, ident="broken@1", prefix="billing", error=reason, checkpoint_id=None)
    unread = {"completed_ms": factories.now_ms(), "checkpoint_id": None, "version": None}
    factories.flink_checkpoint(broken, "chk-42", error=reason, **unread)
