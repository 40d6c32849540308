"""Proves that an audit's manifest is read as it was written, and that what is none is named as such."""

import json
from dataclasses import asdict

import pytest

from fenceline.audit.manifest import (
    AuditedBatch,
    AuditedKey,
    AuditedPosition,
    AuditedRange,
    AuditManifest,
    AuditMode,
    AuditObstacle,
    AuditVerdict,
    ObstacleKind,
    read_audit,
    write_audit,
)
from fenceline.decode.typed import NewerFile, TornFile

BATCH = AuditedBatch(
    7, AuditVerdict.VIOLATED, 1_700_000_000_000, 10, 0, 9, 9, 9, 0, 1, (AuditedRange("orders", 3, 5, 6),)
)
GONE = AuditObstacle(ObstacleKind.RETENTION, "orders-3", "records 0 to 4 are gone", "batch 6 is not proved")
MANIFEST = AuditManifest(
    "prod", "orders_enrich", AuditMode.COUNTS, 3, 1_700_000_000_500, "q", ("orders",), ("enriched",), 6, None,
    10, 9, 0, 1, (BATCH,), (GONE,), ("000000000003-1f",), 8,
    (AuditedPosition("enriched", 0, "id", 5, ((7, 6),)),),
    "key > 3", (AuditedRange("orders", 0, 0, 5),), (AuditedRange("orders", 0, 2, 3),),
    duplicate_keys=(AuditedKey("delta:/out", "k7", 1),),
)  # fmt: skip


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert read_audit(write_audit(MANIFEST)) == MANIFEST


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', '{"format": "1"}', "3"])
def test_what_is_no_manifest_is_named(text: str) -> None:
    with pytest.raises(TornFile, match="no manifest of the audit job"):
        read_audit(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input", "10"), ("at_ms", None), ("run", True), ("query_id", 7), ("sources", [1]),
        ("compared", [["a", 0, 1, "2"]]), ("batches", [{**asdict(BATCH), "input": "x"}]),
        ("obstacles", [["retention", 1, "gone", "not proved"]]),
        ("positions", [["enriched", 0, "id", 5, [[7, "6"]]]]), ("mode", "guess"), ("nonsense", 1),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_no_manifest(name: str, value: object) -> None:
    document = json.loads(write_audit(MANIFEST)) | {name: value}
    with pytest.raises(TornFile, match="no manifest of the audit job"):
        read_audit(json.dumps(document))


def test_a_later_layout_is_told_apart() -> None:
    with pytest.raises(NewerFile, match="knows formats up to 1"):
        read_audit(json.dumps({"format": 2}))


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, AuditVerdict.VIOLATED),
        ({"missing": 0}, AuditVerdict.UNPROVED),
        ({"missing": 0, "obstacles": ()}, AuditVerdict.UNPROVED),
        ({"missing": 0, "obstacles": (), "proved_through": 7}, AuditVerdict.PROVED),
        ({"missing": 0, "duplicated": 1, "proved_through": 7}, AuditVerdict.VIOLATED),
        ({"missing": 0, "obstacles": (), "mode": AuditMode.KEYS}, AuditVerdict.PROVED),
        # An input that is a table has no ranges.
        ({"missing": 0, "obstacles": (), "mode": AuditMode.KEYS, "compared": ()}, AuditVerdict.PROVED),
        (
            {"missing": 0, "obstacles": (), "mode": AuditMode.KEYS, "compared": (), "input": 0},
            AuditVerdict.UNPROVED,
        ),
    ],
)
def test_a_pipeline_is_proved_only_where_nothing_is_missing_or_hidden(
    changed: dict[str, object], verdict: AuditVerdict
) -> None:
    fields = {name: getattr(MANIFEST, name) for name in MANIFEST.__dataclass_fields__}
    assert AuditManifest(**{**fields, **changed}).verdict is verdict
