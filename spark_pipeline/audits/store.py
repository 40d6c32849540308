"""One pipeline's audit output: manifests, and the parts they name. Layout: `fenceline.audit.manifest`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from fenceline.audit.manifest import (
    AuditManifest,
    audit_folder,
    read_audit,
    write_audit,
)
from fenceline.history.reports import part_name
from spark_pipeline.audits import AuditError
from spark_pipeline.job import ManifestLog, OutputFolder

#: Manifests to keep.
_KEPT = 20


class AuditStore:
    """The output of one pipeline. A run counts once its manifest exists."""

    def __init__(self, spark: SparkSession, output: str, cluster: str, pipeline: str) -> None:
        self._spark = spark
        self.files = OutputFolder(spark, f"{output.rstrip('/')}/{audit_folder(cluster, pipeline)}")
        #: Raises AuditError for a manifest of a later Fenceline.
        self.log = ManifestLog(self.files, read_audit, failure=AuditError, kept=_KEPT)
        self.folder = self.files.url

    def delete_orphans(self, manifest: AuditManifest | None) -> None:
        """Delete files of runs without a manifest. Raises AuditError where manifests are missing."""
        parts = set(self.files.names("parts"))
        if manifest is None and any(not name.startswith(f"part={part_name(1, '')}") for name in parts):
            raise AuditError(
                f"{self.folder} has parts and no manifest: its folder log was deleted. Restore it, or give "
                "the job a new --output."
            )
        named = {f"part={name}" for name in manifest.parts} if manifest else set()
        for name in parts - named:
            self.files.delete(f"parts/{name}")

    def publish(self, manifest: AuditManifest, tables: Mapping[str, DataFrame]) -> None:
        """Write a run: its rows as one part, each table to its folder, then its manifest.

        Raises AuditError where this run already has a manifest.
        """
        if tables:
            part = part_name(manifest.run, uuid.uuid4().hex[:8])
            for table, rows in tables.items():
                rows.coalesce(1).write.parquet(f"{self.folder}/parts/part={part}/table={table}")
            manifest = replace(manifest, parts=(*manifest.parts, part))
        if not self.log.publish(manifest.run, write_audit(manifest)):
            raise AuditError(
                f"another driver has written run {manifest.run} to {self.folder}: two audits of one pipeline "
                "run. Stop one."
            )

    def read_table(self, manifest: AuditManifest, table: str) -> DataFrame | None:
        """Return a table's rows in all published parts; None without any."""
        folders = [f"parts/part={part}/table={table}" for part in manifest.parts]
        existing = [f"{self.folder}/{folder}" for folder in folders if self.files.names(folder)]
        return self._spark.read.parquet(*existing) if existing else None
