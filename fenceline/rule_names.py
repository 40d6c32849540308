"""Former names of rules, and the one that each has now. Pure.

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


def current_name(name: str) -> str:
    """Return the name that a rule has now; any other text as it is."""
    return RENAMED.get(name, name)


def all_names(name: str) -> tuple[str, ...]:
    """Return every name that a rule has or had, the current one first; of any other text only itself."""
    current = current_name(name)
    return (current, *(former for former, now in RENAMED.items() if now == current))
