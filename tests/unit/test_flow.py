"""Proves how the flow is derived, narrowed, folded and followed from end to end, and where it is drawn:
always the same, nothing over another, forward."""

import random
import subprocess
import sys
from itertools import pairwise

import pytest

from dashboard.web.flow.layout import BOX_HEIGHT, BOX_WIDTH, FlowDrawing, draw_flow
from fenceline.facts import Severity
from fenceline.flow.derive import derive_flow
from fenceline.flow.graph import (
    Flow,
    FlowEdge,
    FlowHealth,
    FlowNode,
    Latency,
    LinkKind,
    NodeId,
    NodeKind,
    feedback_edges,
)
from fenceline.flow.observations import (
    FlowObservations,
    GroupReads,
    OffsetWrites,
    OpenFindingFacts,
    QueryLinks,
    TopicPartitionCounts,
    TopicWrites,
)
from fenceline.flow.pipelines import find_pipelines
from fenceline.flow.view import cut_flow, flow_around_nodes, fold_flow, search_flow
from fenceline.kafka.groups import GroupStatus
from fenceline.spark.records import QueryState
from tests.seeds import SEED
from tests.unit.flow_topologies import topology


def edges_of(flow: Flow) -> set[tuple[str, str, str]]:
    return {(str(edge.source), str(edge.target), edge.group) for edge in flow.edges}


def chain(*names: str, p95_ms: float | None = 10.0) -> Flow:
    """Return topics and applications in turn, each leading to the next; a last name that was there closes
    a cycle."""
    kinds = (NodeKind.TOPIC, NodeKind.APPLICATION)
    ids: dict[str, NodeId] = {}
    for name in names:
        ids.setdefault(name, NodeId(kinds[len(ids) % 2], name))
    latency = Latency(p95_ms and p95_ms / 2, p95_ms)
    edges = [
        FlowEdge(ids[one], ids[other], LinkKind.PRODUCES, latency=latency) for one, other in pairwise(names)
    ]
    return Flow({at: FlowNode(at, at.name) for at in ids.values()}, edges)


@pytest.mark.parametrize(
    "seeds", [range(at, at + 20) for at in range(0, 200, 20)], ids=lambda each: each.start
)
def test_nodes_and_edges_of_generated_topologies_equal_the_truth(seeds: range) -> None:
    for seed in seeds:
        made = topology(seed)
        flow = derive_flow(made.observations())
        assert edges_of(flow) == made.edges, f"seed {seed}"
        ends = {end for source, target, _ in made.edges for end in (source, target)}
        assert {str(node) for node in flow.nodes} == ends | {f"query:{each.ident}" for each in made.queries}


def test_sinks_of_one_prefix_share_no_figures_and_what_neither_ledger_names_is_a_gap() -> None:
    queries = [
        QueryLinks(name, name, sources=["in"], outputs=[out], application="orders", sink="exactly_once")
        for name, out in (("a", "out-a"), ("b", "out-b"))
    ]
    writes = [TopicWrites("orders", topic, 60) for topic in ("out-a", "out-b", "out-c")]
    flow = derive_flow(FlowObservations(60, writes=writes, queries=queries))
    rates = {edge.target.name: edge.rate for edge in flow.edges if edge.kind is LinkKind.WRITES}
    assert rates == {"out-a": None, "out-b": None}
    assert {gap.subject for gap in flow.gaps if "out-c" in gap.reason} == {"query:a", "query:b"}


def test_a_sink_s_application_is_no_node_of_its_own_and_an_unknown_committer_a_gap_and_no_guess() -> None:
    query = QueryLinks("q", "enrich", sources=["in"], application="enrich", sink="exactly_once")
    flow = derive_flow(FlowObservations(60, writes=[TopicWrites("enrich", "out", 6)], queries=[query]))
    assert edges_of(flow) == {("topic:in", "query:q", ""), ("query:q", "topic:out", "")}
    flow = derive_flow(FlowObservations(60, groups=[GroupReads("g", "in", None)]))
    assert edges_of(flow) == {("topic:in", "group:g", "")}
    assert [gap.subject for gap in flow.gaps] == ["group:g"]


def test_figures_that_are_not_known_are_none() -> None:
    observed = FlowObservations(
        10, writes=[TopicWrites("app", "out", 5, unreadable_times={8: 4})], groups=[GroupReads("g", "out")]
    )
    produced, consumed = derive_flow(observed).edges
    assert (produced.rate, produced.latency.p50_ms) == (0.5, 8.0)
    assert (consumed.rate, consumed.latency) == (None, Latency())


def test_the_rate_of_a_read_process_write_edge_is_known_where_one_group_is_behind_the_partition() -> None:
    groups = [GroupReads(group, "in", "app", log_partition=3) for group in ("g", "other")]
    for behind, rate in ((groups[:1], 0.5), (groups, None)):
        observed = FlowObservations(60, groups=behind, offset_writes=[OffsetWrites("app", 3, 30)])
        assert {edge.rate for edge in derive_flow(observed).edges} == {rate}


def test_what_holds_records_up_is_blocked_and_what_was_not_polled_unknown() -> None:
    open_too_long = OpenFindingFacts("open_too_long", "application:a", Severity.CRITICAL)
    pinned = OpenFindingFacts("lso_pinned", "partition:t-1-0", Severity.WARNING)
    polled = {"t-1": TopicPartitionCounts(4)}
    for subject, observed in {
        "group:g": FlowObservations(60, groups=[GroupReads("g", "t", status=GroupStatus.BLOCKED)]),
        "topic:t": FlowObservations(
            60, [TopicWrites("a", "t")], topics={"t": TopicPartitionCounts(4, blocked=1)}
        ),
        "topic:t-1": FlowObservations(60, [TopicWrites("a", "t-1")], topics=polled, findings=[pinned]),
        "application:a": FlowObservations(60, [TopicWrites("a", "t")], findings=[open_too_long]),
        "query:q": FlowObservations(60, queries=[QueryLinks("q", "q", QueryState.FAILED, ["t"])]),
    }.items():
        health = {str(at): node.health for at, node in derive_flow(observed).nodes.items()}
        assert health[subject] is FlowHealth.BLOCKED
    flow = derive_flow(FlowObservations(60, [TopicWrites("a", "t", 1)]))
    assert flow.nodes[NodeId(NodeKind.TOPIC, "t")].health is FlowHealth.UNKNOWN


def test_a_prepared_batch_blocks_the_output_of_its_query_alone() -> None:
    query = QueryLinks(
        "q", "q", sources=["in"], outputs=["out"], application="q", sink="exactly_once", prepared=1
    )
    finding = OpenFindingFacts("batch_prepared", "query:q", Severity.CRITICAL)
    flow = derive_flow(FlowObservations(60, queries=[query], findings=[finding]))
    health = {LinkKind.READS: FlowHealth.OK, LinkKind.WRITES: FlowHealth.BLOCKED}
    assert {edge.kind: edge.health for edge in flow.edges} == health


def test_a_pipeline_sums_what_is_known_and_names_what_is_missing() -> None:
    flow = chain("a", "b", "c", "d")
    edges = [*flow.edges[:2], FlowEdge(*flow.edges[2].ends, LinkKind.CONSUMES)]
    (found,) = find_pipelines(Flow(flow.nodes, edges))
    assert (found.name, found.latency) == ("a → b → c → d", Latency(10.0, 20.0))
    assert found.missing == ["c → d"]
    # A query's output is part of the time of its batch.
    times = Latency(100.0, 200.0)
    query = QueryLinks("q", "q", sources=["in"], application="q", sink="exactly_once", batch_times=times)
    writes = [TopicWrites("q", "out", 1, unreadable_times={15: 1})]
    (found,) = find_pipelines(derive_flow(FlowObservations(60, writes=writes, queries=[query])))
    assert found.latency == times


def test_a_pipeline_shows_its_weakest_way_and_the_worst_of_all_that_leads_to_its_end() -> None:
    slow, fast = chain("x", "slow", "end", p95_ms=900), chain("x", "fast", "end")
    edges = [*slow.edges, *fast.edges]
    (found,) = find_pipelines(Flow({**slow.nodes, **fast.nodes}, edges))
    assert found.name == "x → slow → end"
    blocked = FlowEdge(*edges[2].ends, LinkKind.PRODUCES, FlowHealth.BLOCKED)
    (found,) = find_pipelines(Flow({**slow.nodes, **fast.nodes}, [*edges[:2], blocked, edges[3]]))
    assert (found.name, found.health, found.weakest) == ("x → fast → end", FlowHealth.BLOCKED, "x → fast")


def test_a_cycle_of_300_nodes_is_followed_once_and_drawn_with_one_edge_that_leads_back() -> None:
    names = [f"n{number:03}" for number in range(300)]
    flow = chain(*names, names[0])
    assert len(feedback_edges(flow.nodes, flow.edges)) == 1
    (found,) = find_pipelines(flow)
    assert len(found.path) == 300
    assert flow_around_nodes(flow, [sorted(flow.nodes)[150]]).nodes == flow.nodes
    drawing = draw_flow(flow)
    assert sum(line.leads_back for line in drawing.lines) == 1
    assert len({box.x for box in drawing.boxes}) == 300


def test_focus_keeps_what_is_upstream_and_downstream_and_nothing_beside() -> None:
    whole, beside = chain("a", "b", "c", "d", "e"), chain("a", "x", "y")
    flow = Flow({**whole.nodes, **beside.nodes}, [*whole.edges, *beside.edges])
    kept = flow_around_nodes(flow, [NodeId(NodeKind.TOPIC, "c")])
    assert {at.name for at in kept.nodes} == {"a", "b", "c", "d", "e"}
    assert not flow_around_nodes(flow, [NodeId(NodeKind.TOPIC, "never-seen")]).nodes


def test_a_search_finds_nodes_with_their_neighbours_and_groups_behind_edges() -> None:
    flow = derive_flow(topology(3).observations())
    assert not search_flow(flow, "no-such-name" * 1_000).nodes
    processed = GroupReads("ledger-group", "in", "app")
    found = search_flow(derive_flow(FlowObservations(60, groups=[processed])), "LEDGER")
    assert edges_of(found) == {("topic:in", "application:app", "ledger-group")}


def test_many_nodes_are_folded_by_prefix_and_what_is_blocked_stays_apart() -> None:
    writes = [TopicWrites(f"shop-{number}", f"orders-{number}", 60) for number in range(40)]
    topics = {f"orders-{number}": TopicPartitionCounts(1, blocked=int(number == 7)) for number in range(40)}
    flow = derive_flow(FlowObservations(60, writes=writes, topics=topics))
    folded = fold_flow(flow)
    numbers = {"application:shop-*": 40, "topic:orders-*": 39, "topic:orders-7": 1}
    assert {str(at): node.number for at, node in folded.nodes.items()} == numbers
    assert sorted(edge.rate or 0 for edge in folded.edges) == [1, 39]
    assert fold_flow(flow, most=80) is flow
    # Topics that only a number tells apart, without a separator before it.
    flow = derive_flow(
        FlowObservations(60, [TopicWrites("shop", f"topic{number}", 60) for number in range(70)])
    )
    numbers = {"application:shop": 1, "topic:topic*": 70}
    assert {str(at): node.number for at, node in fold_flow(flow).nodes.items()} == numbers


def test_a_searched_prefix_is_folded_by_what_follows_it_and_the_node_in_focus_stays_apart() -> None:
    writes = [TopicWrites("gateway", f"shop-{number % 4}-{number}", 60) for number in range(80)]
    focus = NodeId(NodeKind.TOPIC, "shop-1-5")
    folded = fold_flow(derive_flow(FlowObservations(60, writes=writes)), apart=[focus], beyond="Shop-")
    rest = {"shop-0-*": 20, "shop-1-*": 19, "shop-2-*": 20, "shop-3-*": 20}
    expected = {"gateway": 1, "shop-1-5": 1, **rest}
    assert {at.name: node.number for at, node in folded.nodes.items()} == expected


def test_a_cut_flow_has_what_was_asked_for_and_the_worst_nodes_with_their_neighbours() -> None:
    names = [f"{number:03}" for number in range(300)]
    writes = [TopicWrites(f"app{name}", f"topic{name}", 60) for name in names]
    topics = {f"topic{name}": TopicPartitionCounts(1, blocked=int(name in ("150", "299"))) for name in names}
    flow = derive_flow(FlowObservations(60, writes=writes, topics=topics))
    first = NodeId(NodeKind.APPLICATION, "app042")
    assert set(cut_flow(flow, 3, first=[first]).nodes) == {
        first, NodeId(NodeKind.TOPIC, "topic150"), NodeId(NodeKind.TOPIC, "topic299")
    }  # fmt: skip
    cut = cut_flow(flow, 6, first=[first])
    assert {at.name[-3:] for at in cut.nodes} == {"042", "150", "299"}
    assert len(cut.edges) == 3
    assert len(cut_flow(flow, 599).nodes) == 599
    assert cut_flow(flow, 600) is flow


def test_aborts_of_an_application_that_is_over_are_no_warning_and_do_not_name_the_pipeline() -> None:
    """One abort of a one-shot id, and 1,562 commits of the gateway."""
    for last_ms, health in ((1_000_000, FlowHealth.WARNING), (300_000, FlowHealth.OK)):
        writes = [
            TopicWrites("demo-timeout", "orders", 0, 1, last_ms=last_ms),
            TopicWrites("gateway", "orders", 1_562, 1, {8: 9}, last_ms=1_000_000),
        ]
        groups = [GroupReads("billing", "orders")]
        topics = {"orders": TopicPartitionCounts(4)}
        observed = FlowObservations(60, writes, groups=groups, topics=topics, at_ms=1_000_000)
        (pipeline,) = find_pipelines(derive_flow(observed))
        assert pipeline.name == "gateway → orders → billing"
        assert pipeline.health is health
    assert pipeline.weakest == ""


SIZES = {"few": (6, 8, 0), "some": (60, 90, 4), "many": (500, 640, 0), "many, with cycles": (500, 640, 30)}
_PRINTED = (
    "import hashlib; from tests.unit.test_flow import drawn; "
    "print(hashlib.sha256(repr(drawn('some')).encode()).hexdigest())"
)


def flow_of(nodes: int, edges: int, cycles: int) -> Flow:
    """Return a flow of topics and applications in about eight layers."""
    dice = random.Random(SEED)
    ids = [NodeId((NodeKind.TOPIC, NodeKind.APPLICATION)[n % 2], f"n-{n}") for n in range(nodes)]
    step = max(1, nodes // 8)
    pairs = set()
    for _ in range(edges):
        at = dice.randrange(nodes - 1)
        pairs.add((ids[at], ids[min(nodes - 1, at + 1 + 2 * dice.randrange(step))]))
    pairs |= {(ids[n + 1], ids[n]) for n in dice.sample(range(nodes - 1), cycles)}
    found = [FlowEdge(*ends, LinkKind.PRODUCES) for ends in sorted(pairs)]
    return Flow({at: FlowNode(at, at.name) for at in ids}, found)


def drawn(name: str) -> FlowDrawing:
    return draw_flow(flow_of(*SIZES[name]))


@pytest.mark.parametrize("name", SIZES)
def test_nodes_do_not_overlap_and_edges_lead_forward_but_for_those_that_close_a_cycle(name: str) -> None:
    drawing, flow = drawn(name), flow_of(*SIZES[name])
    columns: dict[int, list[int]] = {}
    for box in drawing.boxes:
        columns.setdefault(box.x, []).append(box.y)
    for heights in columns.values():
        assert all(low - high > BOX_HEIGHT for high, low in pairwise(sorted(heights)))
    lefts = sorted(columns)
    assert all(right - left > BOX_WIDTH for left, right in pairwise(lefts))
    assert lefts[-1] + BOX_WIDTH < drawing.width
    assert max(max(heights) for heights in columns.values()) + BOX_HEIGHT < drawing.height
    back = feedback_edges(flow.nodes, flow.edges)
    places = {box.node.id: box.x for box in drawing.boxes}
    for line in drawing.lines:
        source, target = line.edge.ends
        assert line.leads_back == ((source, target) in back)
        assert line.leads_back or places[source] < places[target]


def test_the_same_flow_is_drawn_alike_in_every_process_and_nothing_as_nothing() -> None:
    command, printed = [sys.executable, "-c", _PRINTED], set()
    for seed in ("1", "2", "3"):
        environment = {"PYTHONHASHSEED": seed}
        printed.add(subprocess.check_output(command, env=environment))
    assert len(printed) == 1
    assert draw_flow(Flow()).boxes == []
