"""One pipeline's audit output: manifests, and the parts they name. Layout: `fenceline.audit.manifest`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from fenceline.audit.manifest import (
    AuditManifest,
    NewerAudit,
    NotAnAudit,
    audit_folder,
    audit_name,
    read_audit,
    run_of,
    write_audit,
)
from spark_pipeline.audits.errors import AuditError
from spark_pipeline.folder import OutputFolder

#: Manifests of earlier runs that are left, for readers and for people.
_KEPT = 20


class AuditStore:
    """The output of one pipeline. A run counts once its manifest is there; what it wrote before does not."""

    def __init__(self, spark: SparkSession, output: str, cluster: str, pipeline: str) -> None:
        self._spark = spark
        self._files = OutputFolder(spark, f"{output.rstrip('/')}/{audit_folder(cluster, pipeline)}")

    @property
    def folder(self) -> str:
        """Where the output lies."""
        return self._files.url

    def newest_manifest(self) -> AuditManifest | None:
        """Return the newest manifest, None where there is none; torn ones are deleted. Raises AuditError."""
        for run in sorted(self._runs(), reverse=True):
            name = f"log/{audit_name(run)}"
            try:
                found = self._files.read_or_delete(name, read_audit, torn=NotAnAudit, newer=NewerAudit)
            except NewerAudit as error:
                raise AuditError(f"{self.folder}/{name}: {error}; run the job with that one.") from error
            if found is not None:
                return found
        return None

    def delete_orphans(self, manifest: AuditManifest | None) -> None:
        """Delete what runs left that never came to a manifest. Raises AuditError where manifests are gone."""
        there = set(self._files.names("parts"))
        if manifest is None and any(not name.startswith(f"part={_part_prefix(1)}") for name in there):
            raise AuditError(
                f"{self.folder} has parts and no manifest: its folder log was deleted. Restore it, or give "
                "the job a new --output."
            )
        named = {f"part={name}" for name in manifest.parts} if manifest else set()
        for name in there - named:
            self._files.delete(f"parts/{name}")

    def write_part(self, run: int, tables: Sequence[tuple[str, DataFrame]]) -> str:
        """Write a run's rows, each table to its folder; return the part's name."""
        part = f"{_part_prefix(run)}{uuid.uuid4().hex[:8]}"
        for table, rows in tables:
            rows.write.parquet(f"{self.folder}/parts/part={part}/table={table}")
        return part

    def publish(self, manifest: AuditManifest) -> None:
        """Write a run's manifest, unless there is one: then raises AuditError."""
        if not self._files.create(f"log/{audit_name(manifest.run)}", write_audit(manifest)):
            raise AuditError(
                f"another driver has written run {manifest.run} to {self.folder}: two audits of one pipeline "
                "run. Stop one."
            )
        for run in self._runs():
            if run <= manifest.run - _KEPT:
                self._files.delete(f"log/{audit_name(run)}")

    def _runs(self) -> list[int]:
        return [run for name in self._files.names("log") if (run := run_of(name)) is not None]


def _part_prefix(run: int) -> str:
    return audit_name(run).removesuffix(".json") + "-"
