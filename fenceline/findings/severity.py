"""The severity of a finding: a function of the damage so far and of the remaining time. Pure, one place.

Severity steps only at predictable instants (a reader blocked for so long, a loss so near), and never falls
while nothing improves: a limit before the end of a transaction counts from the beginning of the block, not
from now.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fenceline.facts import Severity
from fenceline.limits import Limits

#: From harmless to worst.
_ORDER = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)
_RANKS: Mapping[str, int] = {severity.value: rank for rank, severity in enumerate(_ORDER)}
#: A block is heavy with this many blocked groups and queries, or with this much time before its own end.
HEAVY_READERS, HEAVY_MS = 10, 900_000


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
