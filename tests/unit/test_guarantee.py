"""Proves what each link of a pipeline guarantees, and which one is the weakest: 100 generated pipelines
whose truth is known, and cases with the reasons as they are shown. A whole pipeline is "exactly once" only
where an audit's manifest proves it; in every other case it says what is known and not known."""

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


def test_the_reasons_are_the_standard_ones() -> None:
    query = QueryLinks(
        "q", "enrich", sources=["in"], outputs=["out"], sink="exactly_once", checkpoint=True,
        isolation=Isolation.READ_COMMITTED,
    )  # fmt: skip
    observed = FlowObservations(
        60, [TopicWrites("gateway", "in", 1)], groups=[GroupReads("billing", "out")], queries=[query]
    )
    assert [link.reason for link in of(observed).links] == [
        "transactional, all sends inside transactions",
        "read_committed, offsets in the checkpoint",
        "transactional sink, ledger complete",
        "offsets committed outside a transaction",
    ]


def test_a_query_whose_isolation_is_not_known_is_exactly_once_only_where_an_audit_proves_it() -> None:
    query = QueryLinks("q", "enrich", sources=["in"], outputs=["out"], sink="exactly_once", checkpoint=True)
    observed = FlowObservations(60, [TopicWrites("gateway", "in", 1)], queries=[query])
    guess, proved = of(observed), of(observed, {"q": 1_203})
    assert (guess.guarantee, guess.unknown) == (Guarantee.UNKNOWN, 1)
    assert guess.weakest.reason.endswith(reasons.ISOLATION_UNKNOWN)
    assert proved.guarantee is Guarantee.EXACTLY_ONCE
    assert proved.links[1].reason == "offsets in the checkpoint, audited through batch 1,203"


def test_a_link_that_is_known_to_be_weak_is_weaker_than_one_that_is_not_known() -> None:
    query = QueryLinks("q", "enrich", sources=["in"], sink="kafka")
    found = of(FlowObservations(60, queries=[query]))
    assert [link.guarantee for link in found.links] == [
        Guarantee.UNKNOWN,
        Guarantee.UNKNOWN,
        Guarantee.AT_LEAST_ONCE,
    ]
    assert found.weakest.name == "enrich → its sink"


def test_a_sink_that_is_no_topic_is_exactly_once_only_where_an_audit_proves_it() -> None:
    query = QueryLinks("q", "enrich", sources=["in"], checkpoint=True, isolation=Isolation.READ_COMMITTED)
    observed = FlowObservations(60, [TopicWrites("gateway", "in", 1)], queries=[query])
    guess, proved = of(observed), of(observed, {"q": 7})
    assert (guess.guarantee, guess.weakest.reason) == (Guarantee.UNKNOWN, reasons.SINK_UNKNOWN)
    assert proved.guarantee is Guarantee.EXACTLY_ONCE
    assert proved.links[-1].reason == "its output is audited through batch 7"


def test_of_a_group_with_members_that_commit_in_both_ways_the_weaker_way_counts() -> None:
    """Two groups of one family: the committer of one of them is not known yet."""
    reads = [GroupReads("family", "in", None), GroupReads("family", "in", "")]
    found = of(FlowObservations(60, [TopicWrites("gateway", "in", 1)], groups=reads))
    assert found.weakest.reason == reasons.OUTSIDE


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(ProducerKind.IDEMPOTENT, reasons.IDEMPOTENT), (ProducerKind.PLAIN, reasons.PLAIN)],
)
def test_records_outside_of_transactions_are_a_link_of_their_own(kind: ProducerKind, reason: str) -> None:
    writes = [TopicWrites("gateway", "in", 1)]
    found = of(FlowObservations(60, writes, outside={"in": kind}))
    assert [(link.name, link.reason) for link in found.links] == [
        ("gateway → in", reasons.TRANSACTIONAL),
        ("other producers → in", reason),
    ]


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
    assert [link.guarantee for link in proof.links[:3]] == [Guarantee.EXACTLY_ONCE] * 3


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
        assert proof.links[1].guarantee is Guarantee.UNKNOWN
        assert proof.verdict is not AuditVerdict.PROVED


def test_an_audit_of_some_records_proves_no_link() -> None:
    proof = proof_of(audit_manifest(query_id="q", condition="amount > 1000"))
    assert proof.links[1].guarantee is Guarantee.UNKNOWN


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
