"""Proves what each link of a pipeline guarantees, which one is the weakest, and that a whole pipeline is
"exactly once" only where an audit's manifest proves it."""

import json
import random
from dataclasses import dataclass, field, replace

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
from fenceline.flow import proof as reasons
from fenceline.flow.derive import derive_flow
from fenceline.flow.graph import NodeKind
from fenceline.flow.observations import (
    FlowObservations,
    GroupReads,
    ProducerKind,
    QueryLinks,
    TopicWrites,
)
from fenceline.flow.pipelines import find_pipelines
from fenceline.flow.proof import (
    Guarantee,
    GuaranteeFacts,
    PipelineProof,
    audit_statement,
    pipeline_links,
    pipeline_proofs,
    proof_document,
)
from tests.audit_manifests import audit_manifest, proved_batch
from tests.cases import cases

_EXACTLY, _UNKNOWN = Guarantee.EXACTLY_ONCE, Guarantee.UNKNOWN
_AT_LEAST, _AT_MOST = Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE
_READ = QueryLinks("", "", checkpoint=True)
#: What is observed of a query that reads with a guarantee, and whether an audit proves it.
_READERS = (
    (_EXACTLY, replace(_READ, isolation=Isolation.READ_COMMITTED), False),
    (_EXACTLY, _READ, True),
    (_UNKNOWN, _READ, False),
    (_UNKNOWN, replace(_READ, checkpoint=False), True),
    (_AT_LEAST, replace(_READ, asynchronous=True), True),
    (_AT_LEAST, replace(_READ, isolation=Isolation.READ_UNCOMMITTED), False),
)
_SINKS: tuple[tuple[Guarantee, dict[str, object]], ...] = (
    (_EXACTLY, {"sink": "exactly_once"}),
    (_EXACTLY, {"sink": "exactly_once", "prepared": 3}),
    (_UNKNOWN, {"sink": "exactly_once", "ledger_damaged": True}),
    (_UNKNOWN, {"sink": ""}),
    (_UNKNOWN, {"sink": "other"}),
    (_AT_LEAST, {"sink": "kafka"}),
    (_AT_MOST, {"sink": "exactly_once", "lost": 2}),
)
#: Of a group: who commits its offsets, and its isolation.
_GROUPS: tuple[tuple[Guarantee, str | None, Isolation], ...] = (
    (_AT_LEAST, "", Isolation.UNKNOWN),
    (_AT_LEAST, "", Isolation.READ_COMMITTED),
    (_UNKNOWN, None, Isolation.UNKNOWN),
)
_PROCESSORS = (
    (_EXACTLY, Isolation.READ_COMMITTED),
    (_UNKNOWN, Isolation.UNKNOWN),
    (_AT_LEAST, Isolation.READ_UNCOMMITTED),
)


@dataclass(slots=True)
class KnownPipeline:
    """One way from a producer, or a topic, to its end, and what each of its links guarantees."""

    links: list[tuple[str, Guarantee]] = field(default_factory=list)
    writes: list[TopicWrites] = field(default_factory=list)
    groups: list[GroupReads] = field(default_factory=list)
    queries: list[QueryLinks] = field(default_factory=list)
    outside: dict[str, ProducerKind] = field(default_factory=dict)
    proved: dict[str, int] = field(default_factory=dict)

    def observations(self) -> FlowObservations:
        """Return it as it is observed."""
        return FlowObservations(60, self.writes, (), self.groups, self.queries, outside=self.outside)

    @property
    def weakest(self) -> tuple[str, Guarantee]:
        """Return the first link of the weakest guarantee."""
        for guarantee in (_AT_MOST, _AT_LEAST, _UNKNOWN, _EXACTLY):
            for link in self.links:
                if link[1] is guarantee:
                    return link
        raise AssertionError("a pipeline has a link")


def known_pipeline(seed: int) -> KnownPipeline:
    """Return a pipeline of one to four steps: of each link the guarantee is drawn, then what is observed."""
    dice, made = random.Random(seed), KnownPipeline()
    topic = "topic-0x"
    if dice.random() < 0.7:
        made.writes.append(TopicWrites("gateway", topic, 60))
        made.links.append((f"gateway → {topic}", _EXACTLY))
        _outside(made, dice, topic)
    elif not _outside(made, dice, topic):
        made.links.append((f"producers → {topic}", _UNKNOWN))
    for number in range(1, dice.randint(1, 3) + 1):
        following = f"topic-{number}x"
        step = dice.choice((_query, _processor))
        step(made, dice, number, topic, following)
        _outside(made, dice, following)
        topic = following
    _end(made, dice, topic)
    return made


def _outside(made: KnownPipeline, dice: random.Random, topic: str) -> bool:
    if dice.random() < 0.8:
        return False
    made.outside[topic] = dice.choice(list(ProducerKind))
    made.links.append((f"other producers → {topic}", _AT_LEAST))
    return True


def _query(made: KnownPipeline, dice: random.Random, number: int, source: str, target: str) -> None:
    name = f"query-{number}x"
    read, query, proved = dice.choice(_READERS[: dice.choice((2, len(_READERS)))])
    written, sink = dice.choice(_SINKS[: dice.choice((2, len(_SINKS)))])
    made.queries.append(
        replace(query, ident=name, name=name, sources=[source], outputs=[target], **sink)  # type: ignore[arg-type]
    )
    if proved:
        made.proved[name] = number
    made.links += [(f"{source} → {name}", read), (f"{name} → {target}", written)]


def _processor(made: KnownPipeline, dice: random.Random, number: int, source: str, target: str) -> None:
    name = f"processor-{number}x"
    read, isolation = dice.choice(_PROCESSORS[: dice.choice((1, len(_PROCESSORS)))])
    made.groups.append(GroupReads(f"{name}-group", source, name, isolation=isolation))
    made.writes.append(TopicWrites(name, target, 60))
    made.links += [(f"{source} → {name}", read), (f"{name} → {target}", _EXACTLY)]


def _end(made: KnownPipeline, dice: random.Random, topic: str) -> None:
    """End at a group, at a query whose output is not known, or at the topic."""
    kind = dice.choice((NodeKind.GROUP, NodeKind.QUERY, NodeKind.TOPIC))
    if kind is NodeKind.GROUP:
        guarantee, application, isolation = dice.choice(_GROUPS)
        made.groups.append(GroupReads("reports", topic, application, isolation=isolation))
        made.links.append((f"{topic} → reports", guarantee))
    elif kind is NodeKind.QUERY:
        read, query, _ = _READERS[2]
        made.queries.append(replace(query, ident="last", name="last", sources=[topic], sink="kafka"))
        made.links += [(f"{topic} → last", read), ("last → its sink", _AT_LEAST)]


def of(observed: FlowObservations, proved: dict[str, int] | None = None) -> PipelineProof:
    (pipeline,) = find_pipelines(derive_flow(observed))
    return PipelineProof(pipeline, pipeline_links(pipeline, GuaranteeFacts(observed, proved)))


@pytest.mark.parametrize("seed", range(100))
def test_links_and_the_weakest_of_a_generated_pipeline_equal_the_truth(seed: int) -> None:
    made = known_pipeline(seed)
    found = of(made.observations(), made.proved)
    assert [(link.name, link.guarantee) for link in found.links] == made.links
    assert (found.weakest.name, found.guarantee) == made.weakest
    assert all(link.reason for link in found.links)


def test_every_guarantee_is_the_weakest_of_some_generated_pipeline() -> None:
    assert {known_pipeline(seed).weakest[1] for seed in range(100)} == set(Guarantee)


ENRICH = QueryLinks("q", "enrich", sources=["in"], outputs=["out"], sink="exactly_once", checkpoint=True)
COMMITTED = replace(ENRICH, isolation=Isolation.READ_COMMITTED)
WRITES = [TopicWrites("gateway", "in", 1)]


def test_each_link_has_its_standard_reason() -> None:
    billing = FlowObservations(60, WRITES, groups=[GroupReads("billing", "out")], queries=[COMMITTED])
    # The committer of one of its two groups is not known yet.
    family = [GroupReads("family", "in", None), GroupReads("family", "in", "")]
    idempotent, plain = (
        replace(billing, groups=(), queries=(), outside={"in": kind}) for kind in ProducerKind
    )
    for observed, links in (
        (
            billing,
            {
                "in → enrich": "read_committed, offsets in the checkpoint",
                "enrich → out": "transactional sink, ledger complete",
                "out → billing": "offsets committed outside a transaction",
            },
        ),
        (FlowObservations(60, WRITES, groups=family), {"in → family": reasons.OUTSIDE}),
        (idempotent, {"other producers → in": reasons.IDEMPOTENT}),
        (plain, {"other producers → in": reasons.PLAIN}),
    ):
        gateway = {"gateway → in": "transactional, all sends inside transactions"}
        assert {link.name: link.reason for link in of(observed).links} == gateway | links


def test_what_is_not_known_of_a_query_is_exactly_once_only_where_an_audit_proves_it() -> None:
    no_topic = replace(COMMITTED, outputs=[], sink="")
    offsets = "offsets in the checkpoint"
    for query, number, reason, proof in (
        (ENRICH, 1, f"{offsets}; {reasons.ISOLATION_UNKNOWN}", f"{offsets}, audited through batch 1,203"),
        (no_topic, 2, reasons.SINK_UNKNOWN, "its output is audited through batch 1,203"),
    ):
        observed = FlowObservations(60, WRITES, queries=[query])
        guessed, proved = of(observed), of(observed, {"q": 1_203})
        assert (guessed.guarantee, guessed.unknown, guessed.weakest.reason) == (_UNKNOWN, 1, reason)
        assert (proved.guarantee, proved.links[number].reason) == (_EXACTLY, proof)


QUERY = replace(ENRICH, name="orders_enrich", sources=["orders"], outputs=["orders_enriched"])
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
    assert [link.guarantee for link in proof.links[:3]] == [Guarantee.EXACTLY_ONCE] * 3


def test_without_an_audit_nothing_is_proved_whatever_the_links_are() -> None:
    groups = [GroupReads("copier-group", "orders", "copier", isolation=Isolation.READ_COMMITTED)]
    writes = [TopicWrites("gateway", "orders", 1), TopicWrites("copier", "copies", 1)]
    all_exact = FlowObservations(60, writes, groups=groups)
    for observed, known in (
        (OBSERVED, "Weakest link: orders_enriched → billing (at least once). Not known: 1 of 4 links."),
        (all_exact, "As observed, exactly once on each link: 3 links."),
    ):
        proof = proof_of(observed=observed)
        unproved = (["Not proved: no audit of it was read."], None, known)
        assert (proof.statements, proof.verdict, proof.known) == unproved


@cases(
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
        "Each record of orders appears exactly once in orders_enriched, from batch 900 through batch 1,203.",
    ),
    (
        {"missing": 3, "duplicated": 1},
        "3 records missing and 1 record duplicated of orders in orders_enriched, since batch 0.",
    ),
    (
        {"obstacles": (GONE,)},
        "orders → orders_enriched is not proved: orders-3: records 0 to 4 are gone; batch 6 is not proved.",
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
)
def test_the_statement_of_an_audit_claims_what_its_counts_have(
    fields: dict[str, object], statement: str
) -> None:
    assert audit_statement(audit_manifest(**fields)) == statement


@pytest.mark.parametrize("fields", [{"obstacles": (GONE,)}, {"missing": 1}, {"condition": "amount > 1000"}])
def test_an_audit_that_does_not_prove_all_records_proves_no_link(fields: dict[str, object]) -> None:
    proof = proof_of(audit_manifest(query_id="q", **fields))
    assert proof.links[1].guarantee is _UNKNOWN
    assert proof.verdict is not AuditVerdict.PROVED


def test_an_audit_belongs_to_the_pipelines_with_its_query_or_its_topics() -> None:
    assert proof_of(audit_manifest(query_id="another")).audits == []
    assert proof_of(audit_manifest(query_id="")).audits
    assert proof_of(audit_manifest(sources=("orders_enriched",), targets=("orders",))).audits == []
    assert proof_of(audit_manifest(sources=("payments",))).audits == []


def test_of_two_audits_the_worse_one_decides() -> None:
    proof = proof_of(audit_manifest(query_id="q"), audit_manifest("copy", missing=1))
    assert [audit.pipeline for audit in proof.audits] == ["copy", "orders_enrich"]
    assert proof.verdict is AuditVerdict.VIOLATED


def test_the_document_is_json_with_the_links_and_the_manifest_but_no_keys_of_records() -> None:
    audit = audit_manifest(query_id="q", loss_keys=(KEY,), duplicate_keys=(KEY,), duplicated=1)
    document = json.dumps(proof_document("prod", proof_of(audit)))
    found = json.loads(document)
    assert (found["path"][-1], found["verdict"]) == ("group:billing", "violated")
    assert found["weakest"]["guarantee"] == found["guarantee"] == "at_least_once"
    assert [link["target"] for link in found["links"]] == found["labels"][1:]
    assert found["audits"][0]["proved_through"] == 1_203
    assert KEY.key not in document


def test_a_proof_of_a_part_is_none_of_a_pipeline_with_an_unknown_link() -> None:
    """Which records the copier reads is not known: the audit proves what is before it alone."""
    writes = [TopicWrites("gateway", "orders", 1), TopicWrites("copier", "copies", 1)]
    groups = [GroupReads("copier-group", "orders_enriched", "copier")]
    observed = FlowObservations(60, writes, groups=groups, queries=[QUERY])
    proof = proof_of(audit_manifest(query_id="q"), observed=observed)
    assert (proof.verdict, proof.is_partial) == (AuditVerdict.UNPROVED, True)
    assert proof.statements[0].startswith("Each record of orders appears exactly once in orders_enriched")
    assert not proof_of(audit_manifest(query_id="q")).is_partial
