"""The rules: facts, `now` and limits in, findings out. Pure; none opens a socket or reads a clock."""

from __future__ import annotations

from collections.abc import Iterator

from fenceline.facts import Finding
from fenceline.limits import Limits
from fenceline.rules import collectors, transactions
from fenceline.snapshot import Snapshot

#: Every rule by name; each yields its findings about one snapshot.
RULES = {
    "open_too_long": transactions.open_too_long,
    "collector_behind": collectors.behind,
}


def judge(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield what every rule finds in a snapshot."""
    for rule in RULES.values():
        yield from rule(snapshot, now_ms=now_ms, limits=limits)
