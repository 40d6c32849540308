"""Proves what is said of a whole pipeline: "exactly once" only where an audit's manifest proves it, and what
is known and not known in every other case."""

import json

import pytest

from fenceline.audit.manifest import (
    AuditedBatch,
    AuditedKey,
    AuditedRange,
    AuditManifest,
    AuditMode,
    AuditObstacle,
    AuditVerdict,
    ObstacleKind,
)
from fenceline.facts import Isolation
from fenceline.flow.derive import derive_flow
from fenceline.flow.guarantee import Guarantee
from fenceline.flow.observations import FlowObservations, GroupReads, QueryLinks, TopicWrites
from fenceline.flow.pipelines import find_pipelines
from fenceline.flow.proof import PipelineProof, audit_statement, pipeline_proofs, proof_document
from tests.audit_manifests import audit_manifest, proved_batch

QUERY = QueryLinks(
    "q",
    "orders_enrich",
    sources=["orders"],
    outputs=["orders_enriched"],
    sink="exactly_once",
    checkpoint=True,
)
OBSERVED = FlowObservations(
    60, [TopicWrites("gateway", "orders", 1)], groups=[GroupReads("billing", "orders_enriched")],
    queries=[QUERY],
)  # fmt: skip
PREPARED = AuditedBatch(1_204, AuditVerdict.PREPARED, None, 18_004, 0, 18_004, 0, 0)
COMPARED = AuditedRange("orders", 0, 0, 1)
KEY = AuditedKey("parquet:/data/out", "customer-4711", 1)
GONE = AuditObstacle(ObstacleKind.RETENTION, "orders-3", "records 0 to 4 are gone", "batch 6 is not proved")


def proof_of(*audits: AuditManifest, observed: FlowObservations = OBSERVED) -> PipelineProof:
    (proof,) = pipeline_proofs(find_pipelines(derive_flow(observed)), observed, audits)
    return proof


def test_an_audit_that_proves_it_makes_the_statement_and_the_reading_link() -> None:
    proof = proof_of(audit_manifest(query_id="q"))
    assert proof.statements == [
        "Each record of orders appears exactly once in orders_enriched, through batch 1,203."
    ]
    assert proof.verdict is AuditVerdict.PROVED
    assert proof.known == "Weakest link: orders_enriched → billing (at least once)."
    assert [link.guarantee for link in proof.guarantee.links[:3]] == [Guarantee.EXACTLY_ONCE] * 3


def test_without_an_audit_nothing_is_proved_whatever_the_links_are() -> None:
    proof = proof_of()
    assert (proof.statements, proof.verdict) == (["Not proved: no audit of it was read."], None)
    assert proof.known == "Weakest link: orders_enriched → billing (at least once). Not known: 1 of 4 links."


def test_links_that_are_all_exactly_once_are_no_proof() -> None:
    groups = [GroupReads("copier-group", "orders", "copier", isolation=Isolation.READ_COMMITTED)]
    writes = [TopicWrites("gateway", "orders", 1), TopicWrites("copier", "copies", 1)]
    proof = proof_of(observed=FlowObservations(60, writes, groups=groups))
    assert proof.known == "As observed, exactly once on each link: 3 links."
    assert proof.statements == ["Not proved: no audit of it was read."]


@pytest.mark.parametrize(
    ("fields", "statement"),
    [
        # A batch that is prepared is not readable yet: nothing is dropped.
        (
            {"input": 21_658_116, "batches": (PREPARED, proved_batch(1_203))},
            "Each record of orders appears exactly once in orders_enriched, through batch 1,203.",
        ),
        (
            {"readable": 21_640_000},
            "Each record of orders appears exactly once in orders_enriched or was dropped by the query, "
            "through batch 1,203.",
        ),
        (
            {"first_batch": 900},
            "Each record of orders appears exactly once in orders_enriched, "
            "from batch 900 through batch 1,203.",
        ),
        (
            {"missing": 3, "duplicated": 1},
            "3 records missing and 1 record duplicated of orders in orders_enriched, since batch 0.",
        ),
        (
            {"obstacles": (GONE,)},
            "orders → orders_enriched is not proved: "
            "orders-3: records 0 to 4 are gone; batch 6 is not proved.",
        ),
        (
            {"mode": AuditMode.KEYS, "input": 60, "condition": "key > 3", "compared": (COMPARED,)},
            "Each record of orders with key > 3 appears exactly once in orders_enriched, "
            "60 records compared by key through batch 1,203.",
        ),
        (
            {"mode": AuditMode.KEYS, "input": 1, "proved_through": None, "compared": (COMPARED,)},
            "Each record of orders appears exactly once in orders_enriched, 1 record compared by key.",
        ),
        (
            {"mode": AuditMode.KEYS, "missing": 2},
            "2 records missing of orders in orders_enriched, compared by key.",
        ),
        ({"proved_through": None}, "orders → orders_enriched is not proved yet: no batch of it is."),
    ],
)
def test_the_statement_of_an_audit_claims_what_its_counts_have(
    fields: dict[str, object], statement: str
) -> None:
    assert audit_statement(audit_manifest(**fields)) == statement


def test_an_obstacle_or_a_loss_proves_no_link() -> None:
    for fields in ({"obstacles": (GONE,)}, {"missing": 1}):
        proof = proof_of(audit_manifest(query_id="q", **fields))
        assert proof.guarantee.links[1].guarantee is Guarantee.UNKNOWN
        assert proof.verdict is not AuditVerdict.PROVED


def test_an_audit_of_some_records_proves_no_link() -> None:
    proof = proof_of(audit_manifest(query_id="q", condition="amount > 1000"))
    assert proof.guarantee.links[1].guarantee is Guarantee.UNKNOWN


def test_an_audit_belongs_to_the_pipelines_with_its_query_or_its_topics() -> None:
    assert proof_of(audit_manifest(query_id="another")).audits == []
    assert proof_of(audit_manifest(query_id="")).audits
    assert proof_of(audit_manifest(sources=("orders_enriched",), targets=("orders",))).audits == []
    assert proof_of(audit_manifest(sources=("payments",))).audits == []


def test_of_two_audits_the_worse_one_decides() -> None:
    proof = proof_of(audit_manifest(query_id="q"), audit_manifest("copy", missing=1))
    assert [audit.pipeline for audit in proof.audits] == ["copy", "orders_enrich"]
    assert proof.verdict is AuditVerdict.VIOLATED


def test_the_document_is_json_with_the_links_and_the_manifest() -> None:
    found = json.loads(json.dumps(proof_document("prod", proof_of(audit_manifest(query_id="q")))))
    assert found["path"][-1] == "group:billing"
    assert found["verdict"] == "proved"
    assert found["weakest"]["guarantee"] == found["guarantee"] == "at_least_once"
    assert [each["target"] for each in found["links"]] == found["labels"][1:]
    assert found["audits"][0]["proved_through"] == 1_203


def test_the_document_has_no_keys_of_records() -> None:
    audit = audit_manifest(query_id="q", loss_keys=(KEY,), duplicate_keys=(KEY,), duplicated=1)
    assert KEY.key not in json.dumps(proof_document("prod", proof_of(audit)))


def test_a_proof_of_a_part_is_none_of_a_pipeline_with_an_unknown_link() -> None:
    """Which records the copier reads is not known: the audit proves what is before it alone."""
    writes = [TopicWrites("gateway", "orders", 1), TopicWrites("copier", "copies", 1)]
    groups = [GroupReads("copier-group", "orders_enriched", "copier")]
    observed = FlowObservations(60, writes, groups=groups, queries=[QUERY])
    proof = proof_of(audit_manifest(query_id="q"), observed=observed)
    assert (proof.verdict, proof.is_partial) == (AuditVerdict.UNPROVED, True)
    assert proof.statements[0].startswith("Each record of orders appears exactly once in orders_enriched")
    assert not proof_of(audit_manifest(query_id="q")).is_partial
