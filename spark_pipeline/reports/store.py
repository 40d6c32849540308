"""The history job's output: manifests, and the parts they name. Layout: `fenceline.history.reports`."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from fenceline.history.reports import (
    Manifest,
    folder_of,
    part_folder,
    part_name,
    read_manifest,
    write_manifest,
)
from spark_pipeline.folder import ManifestLog, OutputFolder
from spark_pipeline.job import JobError

#: Manifests to keep: the newest micro-batch's, and twenty before.
_KEPT = 21


class HistoryError(JobError):
    """The job cannot continue; the text has the reason and the remedy."""


class ReportStore:
    """The output of one cluster."""

    def __init__(self, spark: SparkSession, output: str, cluster: str) -> None:
        self._files = OutputFolder(spark, f"{output.rstrip('/')}/{folder_of(cluster)}")
        #: Raises HistoryError for a manifest of a later Fenceline.
        self.log = ManifestLog(self._files, read_manifest, failure=HistoryError, kept=_KEPT)
        self.folder = self._files.url
        self.parts = f"{self.folder}/parts"

    def part_days(self, part: str) -> list[str]:
        """Return the days of a part's rows in ascending order; as text they sort like days."""
        folder = f"parts/{part_folder(part)}"
        tables = self._files.names(folder)
        names = {name for table in tables for name in self._files.names(f"{folder}/{table}")}
        # Rows without a day, such as state, are in `day=__HIVE_DEFAULT_PARTITION__`.
        return sorted(name[4:] for name in names if name.startswith("day=") and name[4:5].isdigit())

    def publish_manifest(self, manifest: Manifest) -> None:
        """Write a micro-batch's manifest; raises HistoryError if it exists already."""
        if not self.log.publish(manifest.batch, write_manifest(manifest)):
            raise HistoryError(
                f"another driver has written micro-batch {manifest.batch} to {self.folder}: two of them run "
                "on one checkpoint. Stop one."
            )

    def delete_parts(self, parts: Iterable[str]) -> None:
        """Delete parts that are in no manifest any more."""
        for part in parts:
            self._files.delete(f"parts/{part_folder(part)}")

    def delete_orphans(self, manifest: Manifest | None) -> None:
        """Delete the parts of attempts that never wrote a manifest.

        Raises HistoryError where there is no manifest, and yet parts of later micro-batches than the first:
        then the manifests themselves are missing.
        """
        first, parts = part_folder(part_name(0, "")), self._files.names("parts")
        if manifest is None and any(not name.startswith(first) for name in parts):
            raise HistoryError(
                f"{self.folder} has parts and no manifest: its folder log was deleted. Restore it, or give "
                "the job a new --output and --checkpoint."
            )
        named = {part.name for part in manifest.parts} | set(manifest.retired) if manifest else set()
        for folder in set(parts) - {part_folder(name) for name in named}:
            self._files.delete(f"parts/{folder}")

    def query_of(self, checkpoint: str) -> str:
        return self._files.read_elsewhere(f"{checkpoint.rstrip('/')}/metadata")
