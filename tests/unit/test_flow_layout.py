"""Proves where nodes and edges of a flow are drawn: always the same, nothing over another, forward.

Generated flows of up to 500 nodes, with and without cycles.
"""

import random
import subprocess
import sys
from itertools import pairwise

import pytest

from dashboard.web.flow.layout import BOX_HEIGHT, BOX_WIDTH, FlowDrawing, draw_flow
from fenceline.flow.graph import Flow, FlowEdge, FlowNode, LinkKind, NodeId, NodeKind, feedback_edges
from tests.seeds import SEED

SIZES = {"few": (6, 8, 0), "some": (60, 90, 4), "many": (500, 640, 0), "many, with cycles": (500, 640, 30)}
_PRINTED = (
    "import hashlib; from tests.unit.test_flow_layout import drawn; "
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
def test_no_two_nodes_overlap_and_all_are_within_the_drawing(name: str) -> None:
    drawing = drawn(name)
    columns: dict[int, list[int]] = {}
    for box in drawing.boxes:
        columns.setdefault(box.x, []).append(box.y)
    for heights in columns.values():
        assert all(low - high > BOX_HEIGHT for high, low in pairwise(sorted(heights)))
    lefts = sorted(columns)
    assert all(right - left > BOX_WIDTH for left, right in pairwise(lefts))
    assert lefts[-1] + BOX_WIDTH < drawing.width
    assert max(max(heights) for heights in columns.values()) + BOX_HEIGHT < drawing.height


@pytest.mark.parametrize("name", SIZES)
def test_edges_lead_forward_but_for_those_that_close_a_cycle(name: str) -> None:
    flow = flow_of(*SIZES[name])
    back = feedback_edges(flow.nodes, flow.edges)
    places = {box.node.id: box.x for box in drawn(name).boxes}
    for line in drawn(name).lines:
        source, target = line.edge.ends
        assert line.leads_back == ((source, target) in back)
        assert line.leads_back or places[source] < places[target]


def test_the_same_flow_is_drawn_alike_in_every_process() -> None:
    command = [sys.executable, "-c", _PRINTED]
    printed = {
        subprocess.run(
            command, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_a_cycle_of_300_nodes_has_one_edge_that_leads_back() -> None:
    ids = [NodeId((NodeKind.TOPIC, NodeKind.APPLICATION)[n % 2], f"n{n:03}") for n in range(300)]
    edges = [FlowEdge(one, other, LinkKind.PRODUCES) for one, other in pairwise([*ids, ids[0]])]
    drawing = draw_flow(Flow({at: FlowNode(at, at.name) for at in ids}, edges))
    assert sum(line.leads_back for line in drawing.lines) == 1
    assert len({box.x for box in drawing.boxes}) == 300


def test_a_flow_of_nothing_is_drawn_as_nothing() -> None:
    assert draw_flow(Flow()).boxes == []
