"""Rules about transactions."""

from __future__ import annotations

from collections.abc import Iterator

from fenceline.facts import (
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Finding,
    Severity,
    State,
)
from fenceline.limits import Limits
from fenceline.snapshot import OpenTransaction, Snapshot
from fenceline.words import clock, duration

#: How long after a timeout the coordinator may still take to act: 15 s, or one and a half of its 10 s scans.
_GRACE_MS = 15_000


def open_too_long(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield transactions that are Ongoing for longer than `limits.open_too_long_s`.

    A warning while its coordinator will still end it by itself; critical once it should have, or when it
    never will (two-phase commit, KIP-939). The words name instants, not ages: they stay true while it lasts.
    Silent while the cluster cannot be seen: the transaction may have ended since.
    """
    if snapshot.is_blind(now_ms=now_ms, limits=limits):
        return
    for transaction in snapshot.transactions:
        if transaction.state is not State.ONGOING or transaction.started_ms is None:
            continue
        if now_ms - transaction.started_ms > limits.open_too_long_s * 1000:
            yield _finding(transaction, transaction.started_ms, now_ms, limits)


def _finding(transaction: OpenTransaction, started_ms: int, now_ms: int, limits: Limits) -> Finding:
    limit = duration(int(limits.open_too_long_s * 1000))
    named = tuple(f"{topic}-{n}" for topic, numbers in transaction.partitions for n in numbers)
    timed_out = _ends_ms(transaction, started_ms) < now_ms
    overdue = _ends_ms(transaction, started_ms) + _GRACE_MS < now_ms
    return Finding(
        rule="open_too_long",
        cluster=transaction.cluster,
        subject=f"transaction:{transaction.transactional_id}",
        severity=Severity.CRITICAL if overdue or _never_ends(transaction) else Severity.WARNING,
        since_ms=started_ms,
        summary=f"{transaction.transactional_id} is open for more than {limit}",
        evidence=f"{_held(named)}; {_end(transaction, started_ms, timed_out)}",
        next_step=_next_step(transaction, overdue),
        affected=tuple(f"partition:{name}" for name in named),
    )


def _ends_ms(transaction: OpenTransaction, started_ms: int) -> int:
    return started_ms + transaction.timeout_ms


def _never_ends(transaction: OpenTransaction) -> bool:
    return transaction.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS


def _held(named: tuple[str, ...]) -> str:
    if not named:
        return "no partition is held back yet"
    shown = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return f"read_committed consumers of {shown} wait at its first record"


def _end(transaction: OpenTransaction, started_ms: int, timed_out: bool) -> str:
    if _never_ends(transaction):
        return "it takes part in a two-phase commit and never times out"
    ends = clock(_ends_ms(transaction, started_ms))
    timeout = duration(transaction.timeout_ms)
    return (
        f"its timeout of {timeout} passed at {ends}"
        if timed_out
        else f"its coordinator aborts it at {ends}, after {timeout}"
    )


def _next_step(transaction: OpenTransaction, overdue: bool) -> str:
    if _never_ends(transaction):
        return "Find the system that decides it: only that one may commit or abort it."
    if overdue:
        return "Look at its coordinator: it should have aborted this transaction."
    return "Find its producer; if that is gone, only the timeout or a fence ends it."
