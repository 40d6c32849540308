"""Group open findings into incidents: each cause with all of its effects.

Findings and edges form a graph. Its cycles are found with Kosaraju's algorithm, without recursion, and count
as one node each. Then causes are passed on along the edges, each node once. The cost is the number of
findings and edges, times the causes per node, of which MOST_CAUSES are kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fenceline.incidents.causality import Edge, Node, ThingLinks, causal_edges, returning_edges
from fenceline.incidents.findings import FindingKey, OpenFinding, key_of

#: Maximum incidents of an effect: those of the oldest causes.
MOST_CAUSES = 50
NO_LINKS = ThingLinks()
_NEVER_MS = 2**63
#: Nodes by number -> the numbers of their effects.
Arrows = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class IncidentGroup:
    """A cause without an open explanation, and its effects, the oldest first."""

    cause: FindingKey
    effects: tuple[FindingKey, ...] = ()
    #: Whether the cause has ended, even if another instance of it is open.
    is_cause_over: bool = False

    @property
    def members(self) -> frozenset[FindingKey]:
        return frozenset((self.cause, *self.effects))


def group_findings(
    findings: Iterable[OpenFinding],
    links: ThingLinks = NO_LINKS,
    returning: Mapping[FindingKey, str] = MappingProxyType({}),
) -> Sequence[IncidentGroup]:
    """Return the incidents among the open findings of one cluster, the oldest cause first.

    Every finding is in at least one of them: as a cause, or as an effect of up to MOST_CAUSES causes.
    `returning` are ended causes with their instances (`fenceline.incidents.lifecycle.returning_causes`): each
    gets a group of the effects that follow from it alone, if there are any.
    """
    oldest_first = sorted(findings, key=_age)
    keys = tuple(dict.fromkeys(key_of(finding) for finding in oldest_first))
    over = sorted(set(returning) - set(keys))
    edges = [
        *causal_edges(oldest_first, links),
        *returning_edges({key: returning[key] for key in over}, links),
    ]
    groups = group_by_cause((*keys, *over), edges)
    explained = {key for group in groups if group.cause not in over for key in group.members}
    alone = [
        IncidentGroup(group.cause, tuple(key for key in group.effects if key not in explained))
        for group in groups
        if group.cause in over
    ]
    return [
        *(group for group in groups if group.cause in explained),
        *(group for group in alone if group.effects),
    ]


def group_by_cause(keys: Sequence[FindingKey], edges: Iterable[Edge]) -> Sequence[IncidentGroup]:
    """Return groups of findings by edges from cause to effect; in a cycle its first finding is the cause.

    Edges may lead over nodes that are no findings; such a node alone has no effects.
    """
    arrows = _arrows(keys, edges)
    causes: list[tuple[int, ...]] = [()] * len(arrows)
    effects: dict[int, list[int]] = {}
    for circle in _circles(arrows):
        numbers = sorted(number for number in circle if number < len(keys))
        explained = sorted({cause for number in circle for cause in causes[number]})[:MOST_CAUSES]
        roots = tuple(explained or numbers[:1])
        for cause in roots:
            effects.setdefault(cause, []).extend(number for number in numbers if number != cause)
        for number in circle:
            for effect in arrows[number]:
                causes[effect] = _merged(causes[effect], roots)
    return [
        IncidentGroup(keys[cause], tuple(keys[number] for number in sorted(effects[cause])))
        for cause in sorted(effects)
    ]


def _arrows(keys: Sequence[FindingKey], edges: Iterable[Edge]) -> Arrows:
    """Number the nodes, findings first in their order, and return the effects of each node."""
    numbers: dict[Node, int] = {key: number for number, key in enumerate(keys)}
    arrows: list[list[int]] = [[] for _ in keys]
    for cause, effect in edges:
        for node in (cause, effect):
            if numbers.setdefault(node, len(arrows)) == len(arrows):
                arrows.append([])
        arrows[numbers[cause]].append(numbers[effect])
    return [list(dict.fromkeys(ends)) for ends in arrows]


def _merged(causes: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    if not causes or causes == more:
        return more
    return tuple(sorted({*causes, *more})[:MOST_CAUSES]) if more else causes


def _circles(arrows: Arrows) -> Iterator[Sequence[int]]:
    """Yield the strongly connected components of a graph, causes before effects (Kosaraju)."""
    back: list[list[int]] = [[] for _ in arrows]
    for cause, effects in enumerate(arrows):
        for effect in effects:
            back[effect].append(cause)
    seen: set[int] = set()
    left = [node for start in range(len(arrows)) for node in _reached(start, arrows, seen)]
    seen = set()
    for start in reversed(left):
        if circle := list(_reached(start, back, seen)):
            yield circle


def _reached(start: int, arrows: Arrows, seen: set[int]) -> Iterator[int]:
    """Yield the unseen nodes that a node leads to, and the node itself: each after what it leads to."""
    path = [] if start in seen else [(start, iter(arrows[start]))]
    seen.add(start)
    while path:
        node, ends = path[-1]
        for end in ends:
            if end not in seen:
                seen.add(end)
                path.append((end, iter(arrows[end])))
                break
        else:
            path.pop()
            yield node


def _age(finding: OpenFinding) -> tuple[int, str, str]:
    since_ms = _NEVER_MS if finding.since_ms is None else finding.since_ms
    return since_ms, finding.rule, finding.subject
