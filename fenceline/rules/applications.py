"""Rules about applications: what they do too often, and what that costs the brokers."""

from __future__ import annotations

from collections.abc import Iterator

from fenceline import baselines
from fenceline.baselines import RateChange
from fenceline.facts import ABORTS, Finding, Severity, TransitionKind
from fenceline.formatting import format_duration, rough_count
from fenceline.kafka.applications import is_pooled
from fenceline.kafka.transitions import LAST_EPOCH
from fenceline.limits import Limits
from fenceline.snapshot import ApplicationFigures, Snapshot

#: `transactional.id.expiration.ms` by default: seven days, in hours.
_KEPT_H = 168
#: At so many times the limit it is no longer a matter of days.
_EXPLODING = 10
_SPOKEN = {
    TransitionKind.REINIT: "initialises its ids again",
    TransitionKind.TAKEOVER: "takes over open transactions of its own ids",
    TransitionKind.TIMEOUT: "lets transactions time out",
}


def abort_ratio(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield applications of which `limits.abort_percent` of the transactions are aborted; any cause."""
    for each in snapshot.applications:
        aborts = sum(n for kind, n in each.window.items() if kind in ABORTS)
        ends = aborts + each.window.get(TransitionKind.COMMIT, 0)
        if ends < limits.abort_ends or 100 * aborts < limits.abort_percent * ends:
            continue
        # In steps of ten: the words stay while the share wavers.
        percent = 100 * aborts // ends // 10 * 10
        share = "all transactions" if aborts == ends else f"more than {max(percent, 1)} % of the transactions"
        yield _finding(
            "abort_ratio",
            snapshot,
            each,
            Severity.CRITICAL if aborts == ends else Severity.WARNING,
            summary=f"{each.application} aborts {share}",
            evidence=(
                f"{rough_count(aborts)} of {rough_count(ends)} ends within "
                f"{format_duration(int(limits.abort_window_s * 1_000))} were aborts, most of them "
                f"{_most(each)}"
            ),
            next_step="See its events for the cause of each; what was aborted is in Recoveries.",
        )


def abort_rate_anomaly(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield applications that start over, or time out, far more often than they used to."""
    for each in snapshot.applications:
        found = baselines.rate_changes(
            each.hour, each.habits, factor=limits.habit_factor, least=limits.habit_events
        )
        changes = list(found)
        if changes:
            only_reinit = all(change.kind is TransitionKind.REINIT for change in changes)
            yield _finding(
                "abort_rate_anomaly",
                snapshot,
                each,
                Severity.INFO if only_reinit else Severity.WARNING,
                summary=f"{each.application} {_spoken(changes)} more often than usual",
                evidence="; ".join(map(_compared, changes)),
                next_step=(
                    "Look for a restart loop, a new version or a new setting since then; what stays for a "
                    "week becomes its habit."
                ),
            )


def id_explosion(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield applications that make more than `limits.new_ids_per_hour` transactional ids in an hour.

    A coordinator keeps each for `transactional.id.expiration.ms`, seven days by default (FLIP-511). Our own
    sink uses two ids for each task again and again: its first start makes all of them, and then no more.
    """
    for each in snapshot.applications:
        made = each.hour.get(TransitionKind.INIT, 0)
        if made <= limits.new_ids_per_hour or is_pooled(each.sample_id):
            continue
        exploding = made > _EXPLODING * limits.new_ids_per_hour
        yield _finding(
            "id_explosion",
            snapshot,
            each,
            Severity.CRITICAL if exploding else Severity.WARNING,
            summary=f"{each.application} makes {rough_count(made)} transactional ids an hour",
            evidence=(
                f"coordinators keep each in memory for seven days (transactional.id.expiration.ms): "
                f"at this pace {rough_count(made * _KEPT_H)} ids; partitions keep its producer id for a day "
                "(producer.id.expiration.ms)"
            ),
            next_step=(
                "Let it use the same ids again (Flink: TransactionNamingStrategy.POOLING), or lower "
                "transactional.id.expiration.ms on the brokers."
            ),
        )


def epoch_burn(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield applications whose busiest id would rotate more than `limits.rotations_per_day` times a day."""
    for each in snapshot.applications:
        burn = each.burn
        if burn is None or 24 * burn.per_hour <= limits.rotations_per_day * LAST_EPOCH:
            continue
        between_ms = LAST_EPOCH * 3_600_000 // burn.per_hour
        yield _finding(
            "epoch_burn",
            snapshot,
            each,
            Severity.INFO,
            summary=f"{each.application} is exhausting its epochs",
            evidence=(
                f"{burn.transactional_id} uses {rough_count(burn.per_hour)} of its {LAST_EPOCH:,} epochs an "
                f"hour: a new producer id every {_coarse(between_ms)}, "
                f"{rough_count(24 * burn.per_hour / LAST_EPOCH)} a day; {rough_count(burn.ids)} of its ids do"
            ),
            next_step=(
                "Put more records into each transaction. Every producer id that was left behind stays in "
                "each partition it wrote to for a day."
            ),
        )


def _finding(
    rule: str,
    snapshot: Snapshot,
    each: ApplicationFigures,
    severity: Severity,
    *,
    summary: str,
    evidence: str,
    next_step: str,
) -> Finding:
    subject = f"application:{each.application}"
    # Nobody can know when a share began to be too large: since it was found.
    return Finding(rule, snapshot.cluster, subject, severity, None, summary, evidence, next_step)


def _most(each: ApplicationFigures) -> str:
    aborts = {kind: n for kind, n in each.window.items() if kind in ABORTS}
    return max(aborts, key=lambda kind: (aborts[kind], kind)).replace("_", " ")


def _spoken(changes: list[RateChange]) -> str:
    return " and ".join(_SPOKEN[change.kind] for change in changes)


def _compared(change: RateChange) -> str:
    usual = "never" if not change.habit.most else f"at most {change.habit.most:,} times"
    return (
        f"{change.kind}: {rough_count(change.now)} times within the last hour, where it was {usual} in an "
        f"hour of {change.habit.hours} hours with work in the last week, leaving out the worst"
    )


def _coarse(ms: int) -> str:
    """Return a duration by its first digit, so that the words stay while the pace wavers."""
    step = 10 ** max(0, len(str(ms)) - 1)
    return format_duration(ms // step * step)
