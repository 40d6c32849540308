"""Manifests as the audit job writes them, and the files of one below a folder."""

from dataclasses import replace
from pathlib import Path

from fenceline.audit.manifest import (
    AuditedBatch,
    AuditManifest,
    AuditMode,
    AuditVerdict,
    audit_folder,
    write_audit,
)
from fenceline.history.reports import manifest_name


def proved_batch(number: int, records: int = 17_880) -> AuditedBatch:
    """Return a batch of which each record is readable once."""
    return AuditedBatch(
        number, AuditVerdict.PROVED, 1_700_000_000_000, records, 0, records, records, records, 0, 0
    )


def audit_manifest(pipeline: str = "orders_enrich", **fields: object) -> AuditManifest:
    """Return an audit that proves batches 0 to 1,203 of a query, but for `fields`."""
    made = AuditManifest(
        "prod", pipeline, AuditMode.COUNTS, 12, 1_700_000_000_500,
        sources=("orders",), targets=("orders_enriched",), first_batch=0, proved_through=1_203,
        input=21_640_112, readable=21_640_112, batches=(proved_batch(1_203), proved_batch(1_202)),
    )  # fmt: skip
    return replace(made, **fields)  # type: ignore[arg-type]


def leave_audit(folder: Path, manifest: AuditManifest) -> Path:
    """Write a manifest where the job leaves it, and return its file."""
    log = folder / audit_folder(manifest.cluster, manifest.pipeline) / "log"
    log.mkdir(parents=True, exist_ok=True)
    file = log / manifest_name(manifest.run)
    file.write_text(write_audit(manifest))
    return file
