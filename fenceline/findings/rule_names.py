"""Former names of rules with the present name, and removed rules. Pure.

Silences, channels, bookmarks and scripts may contain a former name, and use this module. Rows of findings and
alerts have only present names: a rename after the release needs a migration of them.
"""

from collections.abc import Mapping

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
