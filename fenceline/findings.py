"""What all findings share: the names of their rules, their severity, and their visibility. Pure.

Silences, channels, bookmarks and scripts may contain a former name of a rule. Rows of findings and alerts
have only present names: a rename after the release needs a migration of them.

A severity is a function of the damage so far and of the remaining time. It steps only at predictable instants
(a reader blocked for so long, a loss so near), and never falls while nothing improves: a limit before the end
of a transaction counts from the beginning of the block, not from now.

A rule neither opens nor closes a finding about a subject inside an open gap. A `Sense` is a kind of
observation, through one or a few collectors. A gap of a collector hides scopes from its sense: everything
("cluster"), a subject by its name (`partition:orders-3`, `group:billing`), or all subjects in a place
(`broker:2`, `topic:orders`, `__consumer_offsets-7`, `shard:1`: a tail among several, `root:URL`: a folder of
checkpoints). A scope of another kind hides everything.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fenceline.facts import Severity, VisibilityGap
from fenceline.limits import Limits

#: Former name -> present name. Entries stay for ever: nobody can know which names are still in use.
RENAMED: Mapping[str, str] = {
    "gap": "collector_gap",
    "habit_changed": "abort_rate_anomaly",
    "late": "coordinator_overdue",
}


#: Removed rule -> the present place of its facts.
REMOVED: Mapping[str, str] = {
    "abort_rate_anomaly": "abort_ratio reports applications that abort much, and Events shows what each did",
    "collector_behind": "System and fenceline_collector_seen_seconds_ago of /metrics show collectors",
    "epoch_burn": "the page of a transaction shows its producer id and its epoch",
    "progress_dropped": "the page of a query counts dropped events for each of its runs",
}
#: From harmless to worst.
_ORDER = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)
_RANKS: Mapping[str, int] = {severity.value: rank for rank, severity in enumerate(_ORDER)}
#: A block is heavy with this many blocked groups and queries, or with this much time before its own end.
HEAVY_READERS, HEAVY_MS = 10, 900_000
#: The scope of a gap that hides everything.
EVERYWHERE = "cluster"


def current_name(name: str) -> str:
    """Return the present name of a rule; any other text unchanged."""
    return RENAMED.get(name, name)


def removed_rule(name: str) -> str:
    """Explain that a rule was removed and where its facts are now; "" for other text."""
    where = REMOVED.get(current_name(name))
    return f"The rule {name} was removed: {where}." if where else ""


def known_name(name: str) -> str:
    """Return the present name of a rule. Raises ValueError for a removed one."""
    if removed := removed_rule(name):
        raise ValueError(removed)
    return current_name(name)


def all_names(name: str) -> tuple[str, ...]:
    """Return every name of a rule, the present one first, then former ones; any other text alone."""
    current = current_name(name)
    return (current, *(former for former, now in RENAMED.items() if now == current))


class Impact(NamedTuple):
    """The effect of an open transaction on its readers."""

    #: Since when the LSO has not moved, or the transaction has been open.
    since_ms: int
    #: Groups and queries at that LSO, and since when the first of them waits; 0 and None without a known one.
    readers: int = 0
    blocked_ms: int | None = None
    #: Maximum number of records between the LSO and the high watermark.
    records: int = 0
    #: When a coordinator aborts it; None without a known end.
    ends_ms: int | None = None
    #: Whether its application's transactions usually take this long.
    is_usual: bool = False


def worst_severity(severities: Iterable[Severity]) -> Severity:
    """Return the worst of some severities, info for none."""
    return max(severities, key=_ORDER.index, default=Severity.INFO)


def is_worse(severity: str, than: str) -> bool:
    """Whether a severity is worse than another one; an unknown one is the least."""
    return severity_rank(severity) > severity_rank(than)


def severity_rank(severity: str) -> int:
    """Return the rank of a severity: 0 for info, -1 for an unknown one."""
    return _RANKS.get(severity, -1)


def of_block(impact: Impact, *, now_ms: int, limits: Limits) -> Severity:
    """Return the severity of a blocked LSO.

    | readers blocked for | |
    |---|---|
    | none known | info; a warning after `blocked_critical_s` |
    | less than `group_stalled_s` | info |
    | `group_stalled_s` | a warning; critical if the block is heavy |
    | `blocked_critical_s` | critical |

    Heavy: `blocked_records` or more, ten readers or more, or no end within 15 minutes of its beginning. Never
    more than info for a transaction of its application's usual length.
    """
    if impact.is_usual:
        return Severity.INFO
    if not impact.readers or impact.blocked_ms is None:
        long_ago = now_ms - impact.since_ms > limits.blocked_critical_s * 1_000
        return Severity.WARNING if long_ago and impact.records else Severity.INFO
    blocked_s = (now_ms - impact.blocked_ms) / 1_000
    if blocked_s <= min(limits.group_stalled_s, limits.blocked_critical_s):
        return Severity.INFO
    if blocked_s > limits.blocked_critical_s or is_heavy(impact, limits):
        return Severity.CRITICAL
    return Severity.WARNING


def is_heavy(impact: Impact, limits: Limits) -> bool:
    """Whether a block's damage or duration is large enough to act before it grows old."""
    endless = impact.ends_ms is None or impact.ends_ms - impact.since_ms > HEAVY_MS
    return endless or impact.records >= limits.blocked_records or impact.readers >= HEAVY_READERS


def of_incident(worst: Severity, readers: int, records: int | None, *, limits: Limits) -> Severity:
    """Return the severity of findings with one cause: the worst of them, or their sum's.

    `readers` groups and queries have been blocked for long, before at most `records`; None if unknown.
    Warnings in several places are critical together with ten or more blocked readers, or `blocked_records`
    records.
    """
    is_much = readers >= HEAVY_READERS or (readers > 0 and (records or 0) >= limits.blocked_records)
    return Severity.CRITICAL if is_much and worst is Severity.WARNING else worst


def before_loss(loss_ms: int | None, *, now_ms: int, limits: Limits) -> Severity:
    """Return the severity of a loss of records at an instant, None for a possibly immediate loss.

    A warning at first, critical from `loss_critical_s` before the loss.
    """
    soon = loss_ms is None or loss_ms - now_ms <= limits.loss_critical_s * 1_000
    return Severity.CRITICAL if soon else Severity.WARNING


def lasting_severity(since_ms: int, *, now_ms: int, limits: Limits) -> Severity:
    """Return the severity of something that stops all work of a kind: critical once it lasts."""
    return Severity.CRITICAL if now_ms - since_ms > limits.blocked_critical_s * 1_000 else Severity.WARNING


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
    return VisibilityGap(source, scope, last_ms, reason)


def _is_place(scope: str) -> bool:
    return kind_of(scope) in _PLACES or scope.startswith("__")


def kind_of(thing: str) -> str:
    """Return the kind of a subject or a scope: `partition` for `partition:orders-3`."""
    return thing.partition(":")[0]
