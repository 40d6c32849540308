"""What the Fencing page is asked for: the query string, parsed without ever failing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.history.queries import HistoryCriteria, Place
from dashboard.labels.transition import NOTABLE, TELLING
from dashboard.web.forms.columns import LONGEST_APPLICATION, check_cluster, one_of, place_of, searched
from fenceline.facts import Confidence, TransitionKind

#: How far back the page looks, and the step of its chart, in seconds: minutes up to a few hours, then hours.
RANGES = {
    "15m": (900, 60),
    "1h": (3_600, 60),
    "6h": (21_600, 300),
    "24h": (86_400, 3_600),
    "7d": (604_800, 7_200),
    "30d": (2_592_000, 43_200),
}
RANGE_WORDS = {"15m": "15 m", "1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", "30d": "30 d"}
_USUAL = "24h"
#: Every notable kind, routine or not.
EVERY_KIND = "all"
_KINDS = (*(kind.value for kind in NOTABLE), EVERY_KIND)
_CONFIDENCES = tuple(confidence.value for confidence in Confidence)


@dataclass(frozen=True, slots=True)
class FencingQuery:
    """A parsed query string; `ignored` says in words what in it could not be used."""

    filter: HistoryCriteria
    since: str
    #: The one kind that is asked for, EVERY_KIND, or "" for those that are no routine.
    kind: str
    before: Place | None
    ignored: Sequence[str]

    @property
    def narrowed(self) -> bool:
        """Return whether anything but cluster and time narrows the list."""
        wanted = self.filter
        return bool(self.kind or wanted.confidence or wanted.application or wanted.q)

    @property
    def range_words(self) -> str:
        """Return how far back the page looks."""
        return RANGE_WORDS[self.since]


def parse(query: Mapping[str, str], cluster: str, clusters: Sequence[str], *, now_ms: int) -> FencingQuery:
    """Return what a query string asks for. What it gets wrong falls back to the default and is told."""
    ignored: list[str] = []
    check_cluster(query, clusters, ignored)
    since = one_of("since", query, tuple(RANGES), _USUAL, ignored)
    kind = one_of("kind", query, _KINDS, "", ignored)
    wanted = HistoryCriteria(
        cluster=cluster,
        kinds=_kinds(kind),
        confidence=one_of("confidence", query, _CONFIDENCES, "", ignored),
        application=query.get("application", "").replace("\0", "")[:LONGEST_APPLICATION],
        q=searched(query),
        since_ms=now_ms - RANGES[since][0] * 1_000,
    )
    return FencingQuery(wanted, since, kind, place_of(query, ignored), ignored)


def _kinds(kind: str) -> Sequence[TransitionKind]:
    if not kind:
        return TELLING
    return () if kind == EVERY_KIND else (TransitionKind(kind),)


def place(at: Place | None) -> str:
    """Return where a list goes on, as a parameter; "" for nowhere."""
    return "" if at is None else f"{at[0]}-{at[1]}"
