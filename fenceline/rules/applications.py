"""Rules about applications: frequent events, and their cost for brokers."""

from collections.abc import Iterator

from fenceline.facts import ABORTS, Finding, Severity, TransitionKind
from fenceline.formatting import format_duration, rough_count
from fenceline.kafka.applications import is_pooled
from fenceline.limits import Limits
from fenceline.rules.rule import claim
from fenceline.snapshot import ApplicationFigures, Snapshot

#: `transactional.id.expiration.ms` by default: seven days, in hours.
_KEPT_H = 168
#: At this multiple of the limit it is urgent.
_EXPLODING = 10
#: Kinds whose verdicts may be ambiguous, which counts do not distinguish, and the alternatives.
_UNSURE = {
    TransitionKind.TAKEOVER: "takeover, or own abort before a new start",
    TransitionKind.ADMIN_FENCE: "fence, or takeover by a producer with a timeout of 30 s",
    TransitionKind.ABORT: "abort of an unknown cause",
}


def abort_ratio(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield applications with `limits.abort_percent` aborted transactions, for any cause."""
    for application in snapshot.applications:
        aborts = sum(n for kind, n in application.window.items() if kind in ABORTS)
        ends = aborts + application.window.get(TransitionKind.COMMIT, 0)
        if ends < limits.abort_ends or 100 * aborts < limits.abort_percent * ends:
            continue
        # In steps of ten: the words stay while the share varies.
        percent = 100 * aborts // ends // 10 * 10
        share = "all transactions" if aborts == ends else f"more than {max(percent, 1)} % of the transactions"
        # The begin of a too large share is unknown: since it was found.
        yield claim(
            f"application:{application.application}",
            Severity.CRITICAL if aborts == ends else Severity.WARNING,
            None,
            summary=f"{application.application} aborts {share}",
            evidence=(
                f"{rough_count(aborts)} of {rough_count(ends)} ends within "
                f"{format_duration(int(limits.abort_window_s * 1_000))} were aborts, most of them "
                f"{_most(application)}"
            ),
            next_step="See its events for the cause of each; what was aborted is in Recoveries.",
        )


def id_explosion(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield applications that create more than `limits.new_ids_per_hour` transactional ids in an hour.

    A coordinator keeps each for `transactional.id.expiration.ms`, seven days by default (FLIP-511). Our own
    sink reuses two ids per task: its first start makes all of them, and later ones none.
    """
    for application in snapshot.applications:
        made = application.hour.get(TransitionKind.INIT, 0)
        if made <= limits.new_ids_per_hour or is_pooled(application.sample_id):
            continue
        exploding = made > _EXPLODING * limits.new_ids_per_hour
        yield claim(
            f"application:{application.application}",
            Severity.CRITICAL if exploding else Severity.WARNING,
            None,
            summary=f"{application.application} makes {rough_count(made)} transactional ids an hour",
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


def _most(application: ApplicationFigures) -> str:
    aborts = {kind: n for kind, n in application.window.items() if kind in ABORTS}
    most = max(aborts, key=lambda kind: (aborts[kind], kind))
    return _UNSURE.get(most, most.replace("_", " "))
