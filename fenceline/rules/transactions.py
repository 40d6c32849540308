"""Rules about single transactions: open ones, repeated events of one id, and commits that lost records before
their decision, although the producer got no error.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from fenceline.facts import (
    NOT_REPORTED,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Finding,
    Severity,
    TransactionState,
    expand_partitions,
)
from fenceline.findings import worst_severity
from fenceline.formatting import count_noun, format_clock, format_duration, is_are, list_names, rough_count
from fenceline.grouping import grouped
from fenceline.kafka.applications import Shape, application_of
from fenceline.limits import Limits
from fenceline.losses.aborted_commits import lost_words
from fenceline.losses.recoveries import LostRecords
from fenceline.rules.partitions import Blocks
from fenceline.rules.rule import claim
from fenceline.snapshot import AbortedCommitFacts, OpenTransactionFacts, Repeated, Snapshot, usual_ms

#: The multiple of `timeouts_in_a_row` that means no output at all.
_NOTHING_ARRIVES = 3
_TAKEN_OVER = "is taken over repeatedly"
_RESTARTS = "aborts and initialises again repeatedly: two producers, or one that restarts"
_REWRITE = (
    "Write the lost records again: their offsets are among the affected offsets of the incident, and a "
    "read_uncommitted consumer still gets them there. The rest of the transaction is committed: do not write "
    "that again."
)
_FROM_SOURCE = "Records of a deleted topic are only in the producer's own source."


def open_too_long(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield Ongoing transactions past `limits.open_too_long_s`, or far past their application's usual time.

    INFO while the application's commits usually take that long, else a warning. Critical if no coordinator
    will ever end it (two-phase commit, KIP-939), or once it has blocked readers for long
    (`fenceline.findings.of_block`). The words name instants, not ages: they stay true.
    """
    limit_ms = int(limits.open_too_long_s * 1_000)
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    for transaction in snapshot.transactions:
        if transaction.state is not TransactionState.ONGOING or transaction.started_ms is None:
            continue
        usual = usual_ms(snapshot.usual.get(transaction.application), limits)
        passed_ms = limit_ms if usual is None else min(limit_ms, usual)
        if now_ms - transaction.started_ms > passed_ms:
            own = _severity(transaction, now_ms - transaction.started_ms, limit_ms, usual)
            how_bad = worst_severity([own, blocks.of_transaction(transaction)])
            yield _open(transaction, transaction.started_ms, how_bad, snapshot, now_ms)


def coordinator_overdue(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield Ongoing transactions that their coordinators should have aborted `limits.late_grace_s` ago."""
    for transaction in snapshot.transactions:
        if (
            transaction.state is not TransactionState.ONGOING
            or transaction.started_ms is None
            or transaction.timeout_ms == NOT_REPORTED
            or _never_ends(transaction)
        ):
            continue
        ends_ms = transaction.started_ms + transaction.timeout_ms
        if now_ms - ends_ms > limits.late_grace_s * 1_000:
            yield claim(
                **_about(transaction),
                severity=Severity.CRITICAL,
                since_ms=ends_ms,
                summary=(
                    f"{transaction.transactional_id} should have been aborted by its coordinator at "
                    f"{format_clock(ends_ms)}"
                ),
                evidence=(
                    f"its timeout of {format_duration(transaction.timeout_ms)} has passed and coordinators "
                    f"check every 10 s; {_held(transaction)}"
                ),
                next_step=_after_late(transaction),
            )


def stuck_in_prepare(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield decided transactions that are not complete after `limits.stuck_in_prepare_s`."""
    for transaction in snapshot.transactions:
        passed = now_ms - transaction.updated_ms > limits.stuck_in_prepare_s * 1_000
        if transaction.state is TransactionState.ONGOING or not passed:
            continue
        state, decided = transaction.state, format_clock(transaction.updated_ms)
        yield claim(
            **_about(transaction),
            severity=Severity.CRITICAL,
            since_ms=transaction.updated_ms,
            summary=f"{transaction.transactional_id} is in {state}, but {_unwritten(transaction)}",
            evidence="; ".join(
                [
                    f"in {state} since {decided}, where markers take milliseconds",
                    *(marker.why for marker in transaction.missing[:3]),
                    _held(transaction),
                ]
            ),
            next_step=f"{_bring_back(transaction)}: the coordinator goes on writing markers. Neither a fence "
            "nor an abort helps.",
        )


def fencing_storm(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield ids that were taken over `limits.fencing_storm` times: two live producers share them.

    It is critical only if all these takeovers are unambiguous. Otherwise it is a warning with both causes:
    under transaction version 2 (KIP-890) a client that aborts and initialises again leaves the records of a
    takeover.
    """
    for repeated in snapshot.takeovers:
        if repeated.times < limits.fencing_storm:
            continue
        within = format_duration(int(limits.fencing_storm_s * 1_000))
        is_shown = repeated.unambiguous >= limits.fencing_storm
        yield claim(
            subject=repeated.subject,
            severity=Severity.CRITICAL if is_shown else Severity.WARNING,
            since_ms=repeated.first_ms,
            summary=f"{_name(repeated)} {_TAKEN_OVER if is_shown else _RESTARTS}",
            evidence=_takeovers(repeated, within) if is_shown else _restarts(repeated, within),
            next_step=(
                "Find the two producers that use this transactional id, and give each its own."
                if is_shown
                else "Find out whether two producers use this transactional id: give each its own. Where "
                "there is only one, find out why it aborts and initialises again."
            ),
        )


def timeouts_in_a_row(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield ids and applications with `limits.timeouts_in_a_row` timeouts and no commit between them.

    Critical at three times that number: no output arrives.
    """
    for repeated in snapshot.timeouts:
        if repeated.times < limits.timeouts_in_a_row:
            continue
        yield claim(
            subject=repeated.subject,
            severity=(
                Severity.CRITICAL
                if repeated.times >= _NOTHING_ARRIVES * limits.timeouts_in_a_row
                else Severity.WARNING
            ),
            since_ms=repeated.first_ms,
            summary=f"{_name(repeated)} times out repeatedly",
            evidence=(
                f"{rough_count(repeated.times)} transactions in a row were aborted by their coordinators and "
                f"none was committed, the last at {format_clock(repeated.last_ms)}; "
                f"transaction.timeout.ms is {format_duration(repeated.timeout_ms)}"
            ),
            next_step=(
                "See what keeps its producer from committing in time: a slow batch, a long pause, or a "
                "timeout shorter than the work. What was aborted is in Recoveries."
            ),
        )


def _open(
    transaction: OpenTransactionFacts,
    started_ms: int,
    how_bad: Severity,
    snapshot: Snapshot,
    now_ms: int,
) -> Finding:
    usual = snapshot.usual.get(transaction.application)
    endless = _never_ends(transaction) or transaction.timeout_ms == NOT_REPORTED
    timed_out = not endless and started_ms + transaction.timeout_ms < now_ms
    past = ""
    if usual:
        usual_text = format_duration(usual.p99_ms)
        past = f"; 99 of 100 commits of {transaction.application} take at most {usual_text}"
    names = _names(transaction)
    blocked = f" and blocks {list_names(names)}" if names else ""
    return claim(
        **_about(transaction),
        severity=how_bad,
        since_ms=started_ms,
        summary=f"{transaction.transactional_id} has been open since {format_clock(started_ms)}{blocked}",
        evidence=f"{_held(transaction)}; {_end(transaction, started_ms, timed_out)}{past}",
        next_step=_next_step(transaction, timed_out),
        deadline_ms=None if endless else started_ms + transaction.timeout_ms,
    )


def _about(transaction: OpenTransactionFacts) -> dict[str, Any]:
    """Return the common fields of a finding about an open transaction."""
    return {
        "subject": f"transaction:{transaction.transactional_id}",
        "affected": (
            *(f"partition:{name}" for name in _names(transaction)),
            *(f"group:{name}" for name in transaction.waiting),
            *(f"query:{query.ident}" for query in transaction.queries),
        ),
        "instance": transaction.instance,
    }


def _severity(
    transaction: OpenTransactionFacts, age_ms: int, limit_ms: int, usual_ms: int | None
) -> Severity:
    if usual_ms is not None and age_ms <= usual_ms:
        return Severity.INFO
    return Severity.CRITICAL if _never_ends(transaction) and age_ms > limit_ms else Severity.WARNING


def _never_ends(transaction: OpenTransactionFacts) -> bool:
    return transaction.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS


def _names(transaction: OpenTransactionFacts) -> tuple[str, ...]:
    """Return the partitions in which it may still be open."""
    return tuple(map(str, transaction.missing or expand_partitions(transaction.partitions)))


def _held(transaction: OpenTransactionFacts) -> str:
    names = _names(transaction)
    if not names:
        return "it blocks no partition yet"
    held = f"read_committed consumers of {list_names(names)} are blocked at its first record"
    streams = [query.name for query in transaction.queries]
    groups = _there(transaction.waiting, "group", "groups")
    return "; ".join([held, *groups, *_there(streams, "streaming query", "streaming queries")])


def _unwritten(transaction: OpenTransactionFacts) -> str:
    decided = "commit" if transaction.state is TransactionState.PREPARE_COMMIT else "abort"
    if not transaction.missing:
        return f"its {decided} markers are not written"
    return f"its {decided} marker is not confirmed in {list_names([*map(str, transaction.missing)])}"


def _bring_back(transaction: OpenTransactionFacts) -> str:
    away = {broker for marker in transaction.missing if marker.leader is None for broker in marker.replicas}
    if len(away) == 1:
        return f"Bring back broker {min(away)}"
    return f"Bring back the leaders of {list_names(_names(transaction)) or 'its partitions'}"


def _there(names: Sequence[str], one: str, many: str) -> Iterator[str]:
    if names:
        noun = one if len(names) == 1 else many
        yield f"{len(names):,} {noun} {is_are(len(names))} blocked there: {list_names(names)}"


def _end(transaction: OpenTransactionFacts, started_ms: int, timed_out: bool) -> str:
    if _never_ends(transaction):
        return "it takes part in a two-phase commit and never times out"
    if transaction.timeout_ms == NOT_REPORTED:
        return "when it times out is not known: its coordinator lists it and does not describe it"
    ends, timeout = format_clock(started_ms + transaction.timeout_ms), format_duration(transaction.timeout_ms)
    if timed_out:
        return f"its timeout of {timeout} passed at {ends}"
    return f"its coordinator aborts it at {ends}, after {timeout}"


def _next_step(transaction: OpenTransactionFacts, timed_out: bool) -> str:
    if _never_ends(transaction):
        return "Find the system that decides it: only that one may commit or abort it."
    if timed_out:
        return "Its coordinator aborts it with its next scan; nothing is to be done yet."
    if _is_own_sinks(transaction):
        return _START_QUERY
    return "Find its producer; if that is gone, only the timeout or a fence ends it."


def _is_own_sinks(transaction: OpenTransactionFacts) -> bool:
    return application_of(transaction.transactional_id).kind is Shape.FENCELINE_SINK


def _after_late(transaction: OpenTransactionFacts) -> str:
    words = "Check the broker that coordinates it: is it up, and does its log give a reason? "
    if _is_own_sinks(transaction):
        return f"{words}{_START_QUERY}"
    return f"{words}A fence makes the coordinator abort it."


_START_QUERY = (
    "Start its Spark query again: it commits what its ledger has prepared and aborts the rest. "
    "A fence would lose a prepared batch."
)


def _name(repeated: Repeated) -> str:
    return repeated.subject.partition(":")[2]


def _takeovers(repeated: Repeated, within: str) -> str:
    ambiguous = repeated.times - repeated.unambiguous
    doubt = f" ({rough_count(ambiguous)} of them ambiguous)" if ambiguous else ""
    return (
        f"{rough_count(repeated.times)} takeovers of open transactions within {within}, each aborting what "
        f"the other producer had written{doubt}"
    )


def _restarts(repeated: Repeated, within: str) -> str:
    known = f"; {rough_count(repeated.unambiguous)} of them are takeovers" if repeated.unambiguous else ""
    return (
        f"{rough_count(repeated.times)} open transactions were aborted and their id initialised again within "
        f"{within}{known}: a takeover and a client's own abort before a new start leave the same records"
    )


def aborted_under_commit(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield ids whose committed transaction lost written records; the newest of each."""
    by_id = grouped((commits.transactional_id, commits) for commits in snapshot.aborted_commits)
    for name, (newest, *earlier) in by_id.items():
        yield claim(
            subject=f"transaction:{name}",
            severity=Severity.CRITICAL,
            since_ms=newest.committed_ms,
            summary=f"{name}: {_cause(newest.lost)} before the commit, {lost_words(newest.lost)} lost",
            evidence="; ".join(_evidence(newest, len(earlier))),
            next_step=_rewriting(newest.lost),
            instance=newest.instance,
        )


def _cause(lost: Sequence[LostRecords]) -> str:
    causes = []
    if not all(records.deleted for records in lost):
        causes.append("aborted by a marker")
    if any(records.deleted for records in lost):
        causes.append("its topic was deleted")
    return " and ".join(causes)


def _evidence(commits: AbortedCommitFacts, earlier: int) -> Iterator[str]:
    yield f"its coordinator committed it at {format_clock(commits.committed_ms)}, without an error"
    marked = [_offsets(records) for records in commits.lost if not records.deleted]
    if marked:
        yield f"the log has an abort marker of its producer before the commit marker: {list_names(marked)}"
    deleted = [f"{_offsets(records)} ({records.note})" for records in commits.lost if records.deleted]
    if deleted:
        yield f"gone with their topics while it was open: {list_names(deleted)}"
    if earlier:
        yield f"{count_noun(earlier, 'earlier commit')} of this id lost records within a day"


def _offsets(records: LostRecords) -> str:
    first, last = records.first or 0, records.last or 0
    through = f"offsets {first:,} to {last:,}" if last > first else f"offset {first:,}"
    if records.records is None:
        return f"{records.topic_partition}: {through} at most"
    return f"{records.topic_partition}: {count_noun(records.records, 'record')}, {through}"


def _rewriting(lost: Sequence[LostRecords]) -> str:
    steps = [] if all(records.deleted for records in lost) else [_REWRITE]
    steps += [_FROM_SOURCE] if any(records.deleted for records in lost) else []
    return " ".join([*steps, "Find out who did this while the producer was alive."])
