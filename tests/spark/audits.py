"""What tests of the audit job share: how a pipeline is audited, and what the job has left of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyarrow import parquet
from pyspark.sql import SparkSession

from fenceline.audit.manifest import AuditManifest, ObstacleKind, audit_folder, read_audit
from spark_pipeline import audit
from tests.waiting import wait_for

CLUSTER, PIPELINE = "test", "orders"


class Audited:
    """A pipeline with the folder of its audits; each kind has arguments of its own."""

    bootstrap: str
    output: Path

    def own_arguments(self) -> Sequence[str]:
        raise NotImplementedError

    def arguments(self, *more: str) -> list[str]:
        return [
            "--bootstrap-servers", self.bootstrap, "--cluster", CLUSTER, "--pipeline", PIPELINE, "--output",
            self.output.as_uri(), *self.own_arguments(), *more,
        ]  # fmt: skip

    def run(self, spark: SparkSession, *more: str) -> AuditManifest:
        """Run the job; return the newest manifest."""
        print(audit.run_audit(spark, audit.argument_parser().parse_args(self.arguments(*more))))
        newest = max((self.audits / "log").glob("*.json"))
        return read_audit(newest.read_text())

    @property
    def audits(self) -> Path:
        return self.output / audit_folder(CLUSTER, PIPELINE)

    def rows(self, parts: Sequence[str], table: str) -> list[dict[str, Any]]:
        """Return the rows of a table in some parts of a manifest."""
        folders = [self.audits / "parts" / f"part={name}" / f"table={table}" for name in parts]
        found = [parquet.read_table(folder, partitioning=None) for folder in folders if folder.exists()]
        return [row for some in found for row in some.to_pylist()]


def kinds(manifest: AuditManifest) -> set[ObstacleKind]:
    return {each.kind for each in manifest.obstacles}


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Delete records below an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        deleted.result(30)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic, and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=30).topics, "it is deleted")
