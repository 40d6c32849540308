"""How bad a finding is: a function of the damage so far and of the time that is left. Pure, one place.

Severity only steps at instants that are known beforehand (a reader blocked for so long, a loss so near), and
never falls while nothing gets better: what depends on the end of a transaction counts from the beginning of
the block, not from now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fenceline.facts import Severity
from fenceline.limits import Limits

#: From harmless to worst.
_ORDER = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)
_RANKS: Mapping[str, int] = {severity.value: rank for rank, severity in enumerate(_ORDER)}
#: A block is heavy where so many groups and queries are blocked, or where it lasts so long before it ends by
#: itself.
HEAVY_READERS, HEAVY_MS = 10, 900_000


class Impact(NamedTuple):
    """What an open transaction keeps from its readers."""

    #: Since when the LSO has not moved, or the transaction has been open.
    since_ms: int
    #: Groups and queries at that LSO, and since when the first of them is; 0 and None where none is known.
    readers: int = 0
    blocked_ms: int | None = None
    #: Records, at most, between the LSO and the high watermark.
    records: int = 0
    #: When a coordinator aborts it by itself; None where nothing is known to end it.
    ends_ms: int | None = None
    #: Whether its application's transactions take so long as a rule.
    is_usual: bool = False


def worst_severity(severities: Iterable[Severity]) -> Severity:
    """Return the worst of some severities; info of none."""
    return max(severities, key=_ORDER.index, default=Severity.INFO)


def is_worse(severity: str, than: str) -> bool:
    """Whether a severity is worse than another one; what is not known is least."""
    return severity_rank(severity) > severity_rank(than)


def severity_rank(severity: str) -> int:
    """Return how bad a severity is: 0 for info, -1 for what is not known."""
    return _RANKS.get(severity, -1)


def of_block(impact: Impact, *, now_ms: int, limits: Limits) -> Severity:
    """Return how bad a blocked LSO is.

    | readers blocked for | |
    |---|---|
    | none known | info; a warning after `blocked_critical_s` |
    | less than `group_stalled_s` | info |
    | `group_stalled_s` | a warning; critical where the block is heavy |
    | `blocked_critical_s` | critical |

    Heavy: `blocked_records` or more, ten readers or more, or no end within 15 minutes of its beginning. Never
    more than info for a transaction that is as long as its application's usually are.
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
    """Whether a block does so much damage, or lasts so long, that nobody should wait for it to grow old."""
    endless = impact.ends_ms is None or impact.ends_ms - impact.since_ms > HEAVY_MS
    return endless or impact.records >= limits.blocked_records or impact.readers >= HEAVY_READERS


def of_incident(worst: Severity, readers: int, records: int | None, *, limits: Limits) -> Severity:
    """Return how bad findings with one cause are together: as the worst of them, or what they add up to.

    `readers` groups and queries have been blocked for long, before at most `records`; None where that is not
    known. What is a warning in each place is critical where ten readers or more are blocked in all, or
    `blocked_records` records.
    """
    is_much = readers >= HEAVY_READERS or (readers > 0 and (records or 0) >= limits.blocked_records)
    return Severity.CRITICAL if is_much and worst is Severity.WARNING else worst


def before_loss(loss_ms: int | None, *, now_ms: int, limits: Limits) -> Severity:
    """Return how bad it is that records are lost at an instant, None where that may be any moment.

    A warning at first, critical from `loss_critical_s` before it on.
    """
    soon = loss_ms is None or loss_ms - now_ms <= limits.loss_critical_s * 1_000
    return Severity.CRITICAL if soon else Severity.WARNING


def lasting_severity(since_ms: int, *, now_ms: int, limits: Limits) -> Severity:
    """Return how bad it is that something keeps all of a kind from working: critical once it lasts."""
    return Severity.CRITICAL if now_ms - since_ms > limits.blocked_critical_s * 1_000 else Severity.WARNING
