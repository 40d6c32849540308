"""Proves what each link of a pipeline guarantees, and which one is the weakest: 100 generated pipelines whose
truth is known, and cases with the reasons as they are shown."""

import pytest

from fenceline.facts import Isolation
from fenceline.flow import guarantee as reasons
from fenceline.flow.derive import derive_flow
from fenceline.flow.guarantee import (
    Guarantee,
    GuaranteeFacts,
    PipelineGuarantee,
    pipeline_guarantee,
)
from fenceline.flow.observations import (
    FlowObservations,
    GroupReads,
    ProducerKind,
    QueryLinks,
    TopicWrites,
)
from fenceline.flow.pipelines import find_pipelines
from tests.unit.flow_guarantees import known_pipeline


def of(observed: FlowObservations, proved: dict[str, int] | None = None) -> PipelineGuarantee:
    (pipeline,) = find_pipelines(derive_flow(observed))
    return pipeline_guarantee(pipeline, GuaranteeFacts(observed, proved))


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
