"""Proves which findings are one incident: case tables of causes and effects, circles, and 10,000 findings."""

import random
from collections import defaultdict

import pytest

from fenceline.facts import Finding, Severity, TopicPartitions, TransactionState
from fenceline.incidents.causality import ThingLinks, snapshot_links
from fenceline.incidents.findings import FindingKey, key_of
from fenceline.incidents.grouping import MOST_CAUSES, NO_LINKS, IncidentGroup, group_by_cause, group_findings
from fenceline.incidents.impact import ImpactFigures, IncidentImpact, impact_figures, impact_of
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.limits import Limits
from fenceline.snapshot import OpenTransactionFacts, PinnedPartition, Snapshot
from fenceline.spark.queries import QueryStatus, SinkBatch
from tests.cases import cases

Q, SINK = "query:orders_enrich", "transaction:orders-1a2b3c4d-p0-g1-b0-s3"
OUT, BILLING = "partition:orders_enriched-0", "group:billing"


def finding(rule: str, subject: str, *affected: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(rule, "prod", subject, severity, None, "s", "e", "n", affected)


def incidents(*findings: Finding, links: ThingLinks = NO_LINKS) -> dict[str, set[str]]:
    """The effects by cause, each written as `rule subject`."""
    return {
        " ".join(group.cause): {" ".join(each) for each in group.effects}
        for group in group_findings(findings, links)
    }


def finding_label(each: Finding) -> str:
    return f"{each.rule} {each.subject}"


def driver_crash() -> list[Finding]:
    """What the rules find after kill -9 between prepared and committed."""
    other, more = SINK.replace("p0", "p1"), OUT.replace("-0", "-1")
    return [
        finding("query_failed", Q),
        finding("batch_prepared", Q, SINK, other),
        finding("restart_fails", Q),
        finding("open_too_long", SINK, OUT, BILLING, "query:billing_job"),
        finding("open_too_long", other, more),
        finding("coordinator_overdue", SINK, OUT, BILLING),
        finding("lso_pinned", OUT, BILLING),
        finding("lso_pinned", more),
        finding("group_stalled", BILLING, OUT, SINK),
        finding("query_blocked", "query:billing_job", OUT, SINK),
        finding("watermark_stalled", "query:billing_job"),
    ]


def test_a_driver_crash_with_eleven_findings_in_any_order_is_one_incident() -> None:
    crash = driver_crash()
    assert len(crash) == 11
    assert incidents(*crash) == {finding_label(crash[0]): {finding_label(each) for each in crash[1:]}}
    expected = group_findings(crash)
    for seed in range(20):
        random.Random(seed).shuffle(crash)
        assert group_findings(crash) == expected


A, B, P, G = "transaction:a", "transaction:b", "partition:p-0", "group:g"
CASES: dict[str, tuple[list[Finding], dict[str, set[str]]]] = {
    "a finding alone": ([finding("abort_ratio", "application:x")], {"abort_ratio application:x": set()}),
    "two causes on one partition": (
        [finding("open_too_long", A, P), finding("open_too_long", B, P), finding("lso_pinned", P, G)],
        {f"open_too_long {A}": {f"lso_pinned {P}"}, f"open_too_long {B}": {f"lso_pinned {P}"}},
    ),
    "a hanging transaction beside an open one": (
        [finding("hanging", P, G), finding("open_too_long", A, P), finding("lso_pinned", P, G)],
        {f"hanging {P}": {f"lso_pinned {P}"}, f"open_too_long {A}": {f"lso_pinned {P}"}},
    ),
    "a reader before its partition is found": (
        [finding("open_too_long", A, P), finding("group_stalled", G, P)],
        {f"open_too_long {A}": {f"group_stalled {G}"}},
    ),
    "a reader that nothing explains": (
        [finding("group_stalled", G, P), finding("open_too_long", A, "partition:other-0")],
        {f"group_stalled {G}": set(), f"open_too_long {A}": set()},
    ),
    "unstable offsets follow from transactions, not from an LSO": (
        [finding("lso_pinned", P), finding("offsets_unstable", G, P, A), finding("open_too_long", A)],
        {f"lso_pinned {P}": set(), f"open_too_long {A}": {f"offsets_unstable {G}"}},
    ),
    "an application that times out": (
        [
            finding("timeouts_in_a_row", "application:x"),
            finding("open_too_long", "transaction:x-7", P),
            finding("abort_ratio", "application:x"),
            finding("lso_pinned", P),
            finding("abort_ratio", "application:y"),
        ],
        {
            "timeouts_in_a_row application:x": {
                "open_too_long transaction:x-7", "abort_ratio application:x", f"lso_pinned {P}",
            },
            "abort_ratio application:y": set(),
        },
    ),
    "coordinators that load": (
        [
            finding("coordinator_loading", "coordinators:prod"),
            finding("coordinator_overdue", A, P),
            finding("open_too_long", A, P),
            finding("open_too_long", B),
        ],
        {
            "coordinator_loading coordinators:prod": {f"coordinator_overdue {A}", f"open_too_long {A}"},
            f"open_too_long {B}": set(),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    findings, expected = CASES[name]
    assert incidents(*findings) == expected


def test_a_broker_explains_the_markers_that_its_partitions_wait_for() -> None:
    links = ThingLinks(places={P: frozenset({"broker:2", "topic:p"})})
    gap, other = (finding("collector_gap", "collector:partitions", f"broker:{n}") for n in (2, 3))
    stuck = finding("stuck_in_prepare", A, P)
    assert incidents(gap, stuck, links=links) == {finding_label(gap): {finding_label(stuck)}}
    assert incidents(other, stuck, links=links) == {finding_label(other): set(), finding_label(stuck): set()}


def test_a_broker_that_does_not_answer_explains_what_waits_for_it() -> None:
    """Open transactions with a partition that it leads, and a query that failed and reads one."""
    links = ThingLinks({A: [P]}, {P: frozenset({"broker:2"})}, {Q: [P]})
    away = finding("coordinator_loading", "coordinators:prod", "broker:2")
    late, failed = finding("open_too_long", A), finding("query_failed", Q)
    elsewhere = finding("open_too_long", B)
    assert incidents(away, late, failed, elsewhere, links=links) == {
        finding_label(away): {finding_label(late), finding_label(failed)},
        finding_label(elsewhere): set(),
    }


def test_transactions_of_one_ledger_are_one_incident_before_their_batch_is_prepared() -> None:
    late = [finding("open_too_long", f"transaction:enrich-1a2b3c4d-p{n}-g4-b0-s{n}") for n in range(4)]
    other = finding("open_too_long", "transaction:enrich-99999999-p0-g4-b0-s0")
    found = incidents(*late, other)
    assert sorted(map(len, found.values())) == [0, 3]
    assert found[finding_label(other)] == set()


def test_transactions_of_one_prepared_batch_are_one_incident_before_the_batch_has_a_finding() -> None:
    names = [f"transaction:sink-p{number}" for number in range(3)]
    late = [finding("open_too_long", name, f"partition:out-{name[-1]}") for name in names]
    other = finding("open_too_long", "transaction:orders-1", "partition:out-0")
    links = ThingLinks({"query:q": names})
    apart = incidents(*late, other)
    assert len(apart) == 4
    together = incidents(*late, other, links=links)
    assert sorted(len(effects) for effects in together.values()) == [0, 2]
    batch = finding("batch_prepared", "query:q", *names)
    expected = {finding_label(batch): {finding_label(each) for each in late}, finding_label(other): set()}
    assert incidents(*late, other, batch, links=links) == expected


def snapshot() -> Snapshot:
    """A prepared batch of a stopped driver with one transaction, which blocks a partition."""
    name = SINK.partition(":")[2]
    batch = SinkBatch(7, 0, None, 640, open=(name,))
    held = (TopicPartitions("orders_enriched", (0,)),)
    opened = OpenTransactionFacts(name, TransactionState.ONGOING, 1, 60_000, 0, 0, held)
    pinned = PinnedPartition("orders_enriched", 0, 0, 100, 1_565, PartitionVerdict.OPEN)
    query = QueryStatus("orders_enrich", "orders_enrich", sink_batches=(batch,))
    return Snapshot("prod", transactions=(opened,), partitions=(pinned,), queries=(query,))


def test_a_snapshot_links_findings_that_do_not_name_each_other() -> None:
    failed, stalled = finding("query_failed", Q), finding("group_stalled", BILLING, OUT)
    assert len(incidents(failed, stalled)) == 2
    assert incidents(failed, stalled, links=snapshot_links(snapshot())) == {
        finding_label(failed): {finding_label(stalled)}
    }


def figures_of(of: Snapshot) -> ImpactFigures:
    return impact_figures(of, now_ms=120_000, limits=Limits())


def test_impact_counts_names_and_sums_only_what_is_known() -> None:
    crash = driver_crash()
    cause = key_of(crash[0])
    assert impact_of(cause, crash, ImpactFigures()) == IncidentImpact(2, 2, 1, 1, None, None)
    impact = impact_of(cause, crash, figures_of(snapshot()))
    assert (impact.backlog, impact.records_lost, impact.partitions) == (1_465, 640, 1)
    # A query whose batches are fine loses nothing, whatever else it has.
    failed = finding("query_failed", Q)
    assert impact_of(cause, [failed], figures_of(snapshot())).records_lost is None


@cases(({}, False), ({"groups": 2}, True), ({"backlog": 1_050}, False), ({"backlog": 1_200}, True),
     ({"backlog": None}, True), ({"records_lost": 0}, True),
)  # fmt: skip
def test_a_sum_counts_as_changed_from_a_tenth_on(change: dict[str, int | None], is_news: bool) -> None:
    before = IncidentImpact(1, 1, 1, 1, 1_000, None)
    assert before._replace(**change).is_news(before) is is_news


def keys(count: int) -> list[FindingKey]:
    return [FindingKey("r", f"partition:{number}") for number in range(count)]


@pytest.mark.parametrize("size", [2, 3, 300])
def test_a_circle_is_one_incident_with_its_first_finding_as_cause_unless_something_explains_it(
    size: int,
) -> None:
    *nodes, cause = keys(size + 1)
    edges = [(nodes[number], nodes[(number + 1) % size]) for number in range(size)]
    assert group_by_cause(nodes, edges) == [IncidentGroup(nodes[0], tuple(nodes[1:]))]
    explained = group_by_cause([*nodes, cause], [*edges, (cause, nodes[1])])
    assert explained == [IncidentGroup(cause, tuple(nodes))]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_graphs_against_reachability(seed: int) -> None:
    """The truth by brute force: circles by mutual reachability, causes by reachability."""
    random_ = random.Random(seed)
    for _ in range(200):
        nodes = keys(random_.randint(1, 12))
        edges = [(random_.choice(nodes), random_.choice(nodes)) for _ in range(random_.randint(0, 20))]
        reach = reachable(nodes, edges)
        first = {
            n: min((m for m in nodes if m in reach[n] and n in reach[m]), key=nodes.index) for n in nodes
        }
        is_cause = {n: first[n] == n and all(first[m] == n for m in nodes if n in reach[m]) for n in nodes}
        truth = {n: {m for m in reach[n] if m != n} for n in nodes if is_cause[n]}
        found = {group.cause: set(group.effects) for group in group_by_cause(nodes, edges)}
        assert found == truth, (nodes, edges)


def reachable(
    nodes: list[FindingKey], edges: list[tuple[FindingKey, FindingKey]]
) -> dict[FindingKey, set[FindingKey]]:
    reach = {node: {node} for node in nodes}
    for _ in nodes:
        for cause, effect in edges:
            for node in nodes:
                if cause in reach[node]:
                    reach[node].add(effect)
    return reach


def test_10_000_findings_at_once_are_grouped_as_they_were_made() -> None:
    """2,000 independent causes with four effects each, shuffled."""
    found: list[Finding] = []
    truth: dict[str, set[str]] = defaultdict(set)
    for n in range(2_000):
        where, group, query = f"partition:p-{n}", f"group:g-{n}", f"query:q-{n}"
        story = [
            finding("open_too_long", f"transaction:t-{n}", where),
            finding("lso_pinned", where, group),
            finding("group_stalled", group, where),
            finding("query_blocked", query, where),
            finding("watermark_stalled", query),
        ]
        truth[finding_label(story[0])] = {finding_label(each) for each in story[1:]}
        found += story
    random.Random(7).shuffle(found)
    assert incidents(*found) == truth


def test_500_causes_and_500_effects_in_one_partition_stay_bounded() -> None:
    causes = [finding("open_too_long", f"transaction:t-{n:03}", P) for n in range(500)]
    readers = [finding("group_stalled", f"group:g-{n}", P) for n in range(500)]
    grouped = incidents(*causes, *readers)
    assert len(grouped) == 500
    assert sum(len(effects) for effects in grouped.values()) == MOST_CAUSES * 500
