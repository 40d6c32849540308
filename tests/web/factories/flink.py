"""Flink jobs, their checkpoints and what those decided to commit, for pages to show."""

from collections.abc import Sequence

from dashboard.models import Cluster, ConnectorRecord, FlinkCheckpointRecord, FlinkJob, FlinkRunRecord
from fenceline.engines.flink.records import Committable, TransactionOwnership
from tests.web.factories.clusters import now_ms

FLINK_JOB_ID = "5d1c0f1e8f954d1c8a1b9e3f7a6c2b10"
FLINK_IDENT = f"{FLINK_JOB_ID}@0a1b2c3d"


def committable(name: str, producer_id: int = 2051, epoch: int = 17) -> Committable:
    """Return a transaction that checkpoint 41 decided to commit."""
    return Committable(name, producer_id, epoch, 41, "out")


def flink_job(
    of: Cluster,
    committables: Sequence[Committable] = (),
    *,
    ident: str = FLINK_IDENT,
    prefix: str = "copy",
    age_ms: int = 90_000,
    **fields: object,
) -> FlinkJob:
    """Return a job whose newest checkpoint, 41, was completed `age_ms` ago, but for `fields`."""
    completed_ms = now_ms() - age_ms
    defaults: dict[str, object] = {
        "path": f"s3://checkpoints/{ident.partition('@')[0]}",
        "job_id": FLINK_JOB_ID,
        "prefixes": [prefix],
        "checkpoint_id": 41,
        "completed_ms": completed_ms,
        "is_savepoint": False,
        "pending": len(committables),
        "seen_ms": now_ms() - 300,
        "rev": 1,
    }
    job = FlinkJob.objects.create(cluster=of, ident=ident, **(defaults | fields))
    flink_checkpoint(job, "chk-41", committables, prefix=prefix, completed_ms=completed_ms)
    return job


def flink_run(job: FlinkJob) -> FlinkRunRecord:
    """Return what a JobManager reports of a job that restarts."""
    at_ms = now_ms() - 30_000
    return FlinkRunRecord.objects.create(
        cluster=job.cluster,
        job_id=job.job_id,
        url="http://jm:8081",
        version="2.1.0",
        name="copy orders",
        state="RESTARTING",
        started_ms=now_ms() - 900_000,
        operators=[["Source: in -> Sink: Writer", 2, "RUNNING"]],
        checkpoints={
            "counts": {"completed": 41, "failed": 1, "in_progress": 0},
            "completed": [41, at_ms, 320, ""],
            "failed": [42, at_ms, None, "Checkpoint expired before completing."],
            "restored": None,
        },
        seen_ms=now_ms() - 2_000,
    )


def connector(of: Cluster, **fields: object) -> ConnectorRecord:
    """Return what a worker of group cdc reports of a connector of Debezium, one task of which has failed."""
    defaults: dict[str, object] = {
        "url": "http://w1:8083",
        "group": "cdc",
        "version": "4.2.0",
        "name": "mysql-source",
        "kind": "source",
        "connector": "io.debezium.connector.mysql.MySqlConnector",
        "state": "RUNNING",
        "worker": "w1:8083",
        "tasks": [[0, "FAILED", "w1:8083", "ConnectException: no such table"], [1, "RUNNING", "w2:8083", ""]],
        "debezium": ["shop", "__debezium-heartbeat.shop", "shop.transaction", "schema-changes.shop", ""],
        "seen_ms": now_ms() - 2_000,
    }
    return ConnectorRecord.objects.create(cluster=of, **(defaults | fields))


def flink_checkpoint(
    job: FlinkJob,
    name: str,
    committables: Sequence[Committable] = (),
    *,
    prefix: str = "copy",
    ownership: TransactionOwnership = TransactionOwnership.IMPLICIT_BY_SUBTASK_ID,
    **fields: object,
) -> FlinkCheckpointRecord:
    """Return a checkpoint of a job with two writers, but for `fields`."""
    defaults: dict[str, object] = {
        "checkpoint_id": int(name.rpartition("-")[2]) if name else 41,
        "version": 6,
        "is_savepoint": job.is_savepoint,
        "committables": [list(each) for each in committables],
        "writers": [[prefix, subtask, 2, ownership.value, [], "out"] for subtask in range(2)],
    }
    return FlinkCheckpointRecord.objects.create(job=job, name=name, **(defaults | fields))
