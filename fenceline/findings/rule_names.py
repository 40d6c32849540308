"""Former names of rules with the name now, and rules that were removed. Pure.

Silences, channels, bookmarks and scripts may have a former one, and come through here. Rows of findings and
alerts have only names of now: a rename after the release needs a migration of them.
"""

from __future__ import annotations

from collections.abc import Mapping

#: By former name: the name now. What is here stays: nobody can know who still uses it.
RENAMED: Mapping[str, str] = {
    "gap": "collector_gap",
    "habit_changed": "abort_rate_anomaly",
    "late": "coordinator_overdue",
}


#: By removed rule: where its facts are now.
REMOVED: Mapping[str, str] = {
    "abort_rate_anomaly": "abort_ratio reports applications that abort much, and Events shows what each did",
    "collector_behind": "System and fenceline_collector_seen_seconds_ago of /metrics show collectors",
    "epoch_burn": "the page of a transaction shows its producer id and its epoch",
    "progress_dropped": "the page of a query counts dropped events for each of its runs",
}


def current_name(name: str) -> str:
    """Return the name that a rule has now; any other text as it is."""
    return RENAMED.get(name, name)


def removed_rule(name: str) -> str:
    """Return that a rule was removed and where its facts are now; "" for any other text."""
    where = REMOVED.get(current_name(name))
    return f"The rule {name} was removed: {where}." if where else ""


def known_name(name: str) -> str:
    """Return the name that a rule has now. Raises ValueError for one that was removed."""
    if removed := removed_rule(name):
        raise ValueError(removed)
    return current_name(name)


def all_names(name: str) -> tuple[str, ...]:
    """Return every name that a rule has or had, the current one first; of any other text only itself."""
    current = current_name(name)
    return (current, *(former for former, now in RENAMED.items() if now == current))
