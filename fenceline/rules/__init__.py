"""The rules: facts, `now` and limits in, findings out. Pure; no rule opens a socket or reads a clock."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import nsmallest

from fenceline.facts import Finding
from fenceline.findings import Sense, Visibility
from fenceline.limits import Limits
from fenceline.rules import (
    applications,
    audits,
    collectors,
    flink,
    groups,
    partitions,
    queries,
    sources,
    transactions,
)
from fenceline.rules.rule import Rule
from fenceline.snapshot import Snapshot

#: Maximum findings of a rule at once, the oldest ones: a page of thousands helps nobody.
MOST_FINDINGS = 500

_TRANSACTIONS = frozenset({Sense.TRANSACTIONS})
_HISTORY = frozenset({Sense.HISTORY})
_PARTITIONS = frozenset({Sense.PARTITIONS})
_QUERIES = frozenset({Sense.QUERIES})
_SOURCES = _QUERIES | _PARTITIONS
#: The coordinator's newest state shows the fate of a decided transaction.
_FLINK = frozenset({Sense.FLINK, Sense.TRANSACTIONS})

_ALL = (
    Rule("open_too_long", transactions.open_too_long, _TRANSACTIONS),
    Rule("coordinator_overdue", transactions.coordinator_overdue, _TRANSACTIONS),
    Rule("stuck_in_prepare", transactions.stuck_in_prepare, _TRANSACTIONS),
    # Markers in a log are final.
    Rule("aborted_under_commit", transactions.aborted_under_commit, _TRANSACTIONS, settled=True),
    # Only a complete list of ids proves that a producer id has no owner.
    Rule("hanging", partitions.hanging, _PARTITIONS | _TRANSACTIONS, settled=True),
    Rule("lso_pinned", partitions.lso_pinned, _PARTITIONS, settled=True),
    Rule("group_stalled", groups.group_stalled, frozenset({Sense.GROUPS, Sense.PARTITIONS})),
    Rule("offsets_unstable", groups.offsets_unstable, frozenset({Sense.GROUPS})),
    Rule("unread_deleted", groups.unread_deleted, frozenset({Sense.GROUPS, Sense.PARTITIONS})),
    Rule("fencing_storm", transactions.fencing_storm, _HISTORY),
    Rule("timeouts_in_a_row", transactions.timeouts_in_a_row, _HISTORY),
    Rule("abort_ratio", applications.abort_ratio, _HISTORY),
    Rule("id_explosion", applications.id_explosion, _HISTORY),
    Rule("batch_lost", queries.batch_lost, _QUERIES),
    Rule("batch_prepared", queries.batch_prepared, _QUERIES),
    Rule("restart_fails", queries.restart_fails, _QUERIES),
    Rule("two_writers", queries.two_writers, _QUERIES),
    Rule("data_loss_risk", sources.data_loss_risk, _SOURCES),
    Rule("topic_recreated", sources.topic_recreated, _SOURCES),
    Rule("topic_deleted", sources.topic_deleted, _SOURCES),
    Rule("query_blocked", sources.query_blocked, _SOURCES),
    Rule("watermark_stalled", sources.watermark_stalled, _QUERIES),
    Rule("batch_slow", queries.batch_slow, _QUERIES),
    # An abort is its coordinator's record: no further poll revokes it.
    Rule("flink_commit_lost", flink.flink_commit_lost, _FLINK, settled=True),
    Rule("flink_commit_pending", flink.flink_commit_pending, _FLINK),
    # These depend on listeners, not on the checkpoint collector; an unreadable file is an observation too.
    Rule("query_failed", queries.query_failed),
    Rule("checkpoint_unreadable", queries.checkpoint_unreadable),
    Rule("audit_violated", audits.audit_violated, frozenset({Sense.AUDITS})),
    Rule("coordinator_loading", collectors.coordinator_loading, frozenset({Sense.LISTS})),
    Rule("collector_gap", collectors.collector_gap),
)

#: Every rule by name.
RULES: Mapping[str, Rule] = {rule.name: rule for rule in _ALL}


def evaluate_rules(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield the findings of all rules, except findings outside their data's visibility."""
    visible = snapshot.visibility(now_ms=now_ms, limits=limits)
    for rule in RULES.values():
        findings = rule.check(snapshot, now_ms=now_ms, limits=limits)
        covered = (
            finding
            for finding in findings
            if covers_finding(visible, rule.name, finding.subject, finding.affected)
        )
        for finding in nsmallest(MOST_FINDINGS, covered, key=_age):
            yield replace(finding, rule=rule.name, cluster=snapshot.cluster)


def covers_finding(visible: Visibility, rule: str, subject: str, affected: Iterable[str]) -> bool:
    """Whether a rule sees its finding's subject; True for deleted subjects too, to close it."""
    return rule not in RULES or visible.covers(RULES[rule].needs, subject, *affected)


def source_collectors(rule: str, snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[str]:
    """Yield the collectors whose polls a rule depends on; none if two polls have already agreed.

    A collector that is behind is omitted: a rule finds nothing in its hidden part.
    """
    needs = RULES[rule].needs if rule in RULES and not RULES[rule].settled else frozenset()
    for collector in snapshot.collectors:
        senses = collector.senses & needs
        if any(not collector.hides(sense, now_ms, limits) for sense in senses):
            yield collector.name


def _age(finding: Finding) -> tuple[bool, int]:
    return finding.since_ms is None, finding.since_ms or 0
