"""Visibility: a rule neither opens nor closes a finding about a subject inside an open gap.

A `Sense` is a kind of observation, through one or a few collectors. A gap of a collector hides scopes from
its sense: everything ("cluster"), a subject by its name (`partition:orders-3`, `group:billing`), or all
subjects in a place (`broker:2`, `topic:orders`, `__consumer_offsets-7`, `shard:1`: a tail among several,
`root:URL`: a folder of checkpoints). A scope of another kind hides everything.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fenceline.facts import VisibilityGap
from fenceline.limits import Limits

#: The scope of a gap that hides everything.
EVERYWHERE = "cluster"


class Sense(StrEnum):
    """A kind of observation of a cluster; each rule names the senses that it needs."""

    #: The newest state of every transactional id: from tails, or from the coordinators' lists if no tail may
    #: read.
    TRANSACTIONS = "transactions"
    #: Events and their numbers: only from the tails.
    HISTORY = "history"
    #: Offsets of partitions, and the producers that block them.
    PARTITIONS = "partitions"
    #: The groups' commits, and the transactions that they wait for.
    GROUPS = "groups"
    #: Checkpoints of streaming queries, and their sinks' ledgers.
    QUERIES = "queries"
    #: The coordinators' own lists.
    LISTS = "lists"
    #: The audit job's output for each pipeline.
    AUDITS = "audits"
    #: Checkpoints of Flink's jobs.
    FLINK = "flink"


#: The kinds of subjects that a sense observes one by one; all others are visible or hidden as a whole.
_THINGS: Mapping[Sense, Collection[str]] = {
    Sense.TRANSACTIONS: ("transaction",),
    Sense.HISTORY: ("transaction",),
    Sense.PARTITIONS: ("partition",),
    Sense.GROUPS: ("group",),
    Sense.QUERIES: ("query",),
    Sense.LISTS: (),
    Sense.AUDITS: ("pipeline",),
    Sense.FLINK: ("flink_job",),
}
#: Scopes that name one subject, and scopes of places; Kafka's own topics begin with "__".
_NAMED = ("partition", "group", "transaction", "query", "pipeline", "flink_job")
_PLACES = ("broker", "topic", "shard", "root", "checkpoint")


@dataclass(frozen=True, slots=True)
class Visibility:
    """The parts that are hidden from each sense now, and the places of subjects."""

    hidden: Mapping[Sense, frozenset[str]] = field(default_factory=dict)
    #: By subject; a missing one may be anywhere.
    places: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def covers(self, needs: Collection[Sense], *things: str) -> bool:
        """Whether every needed sense sees those of `things` that it observes one by one.

        A sense that observes none of them one by one (a hanging transaction has no id to look up) must see
        everything.
        """
        return all(self._sees(need, things) for need in needs)

    def _sees(self, sense: Sense, things: Collection[str]) -> bool:
        scopes = self.hidden.get(sense)
        if not scopes:
            return True
        own = [thing for thing in things if kind_of(thing) in _THINGS[sense]]
        bounded = all(kind_of(scope) in _NAMED or _is_place(scope) for scope in scopes)
        return bool(own) and bounded and not any(self._lies_in(name, scopes) for name in own)

    def _lies_in(self, thing: str, scopes: frozenset[str]) -> bool:
        if thing in scopes:
            return True
        places = self.places.get(thing)
        if places is None:
            return any(map(_is_place, scopes))
        return not places.isdisjoint(scopes)


def expected_ms(limits: Limits, *, reads_on: bool) -> int:
    """Return the permitted age of a source's last complete reading: a tail's, or a poller's."""
    return int(1_000 * (limits.collector_behind_s if reads_on else limits.poller_behind_s))


def stale_gap(
    cluster: str,
    source: str,
    *,
    seen_through_ms: int | None,
    since_ms: int,
    expected_ms: int,
    now_ms: int,
    reason: str,
    scope: str = EVERYWHERE,
) -> VisibilityGap | None:
    """Return the gap of a source that has read nothing newer for `expected_ms`; None on time.

    The gap begins at the source's last complete reading, or, before its first complete poll, at `since_ms`,
    its start. Rules that need the source are silent meanwhile, as during any gap.
    """
    last_ms = since_ms if seen_through_ms is None else seen_through_ms
    if now_ms - last_ms <= expected_ms:
        return None
    return VisibilityGap(cluster, source, scope, last_ms, None, reason)


def _is_place(scope: str) -> bool:
    return kind_of(scope) in _PLACES or scope.startswith("__")


def kind_of(thing: str) -> str:
    """Return the kind of a subject or a scope: `partition` for `partition:orders-3`."""
    return thing.partition(":")[0]
