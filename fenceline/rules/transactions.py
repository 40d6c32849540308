"""Rules about transactions, one by one: those that are open, and what befell their ids again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fenceline.baselines import UsualCommit
from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS, Finding, Severity, TransactionState
from fenceline.formatting import format_clock, format_duration, list_names, rough_count
from fenceline.limits import Limits
from fenceline.plans.plan import RefusalReason
from fenceline.plans.protected import protection_reason
from fenceline.rules.blocking import Blocks, usual_ms
from fenceline.severity import worst_severity
from fenceline.snapshot import OpenTransactionFacts, Repeated, Snapshot

#: So many times the limit of timeouts in a row are no matter of single transactions any more.
_NOTHING_ARRIVES = 3


def open_too_long(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield Ongoing transactions past `limits.open_too_long_s`, or far past what their application takes.

    A note while the application's commits do take so long, a warning otherwise; critical when no coordinator
    will ever end it (two-phase commit, KIP-939), or once it blocks readers for long
    (`fenceline.severity.of_block`). The words name instants, not ages: they stay true.
    """
    limit_ms = int(limits.open_too_long_s * 1_000)
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    for each in snapshot.transactions:
        if each.state is not TransactionState.ONGOING or each.started_ms is None:
            continue
        usual = usual_ms(snapshot.usual.get(each.application), limits)
        passed_ms = limit_ms if usual is None else min(limit_ms, usual)
        if now_ms - each.started_ms > passed_ms:
            own = _severity(each, now_ms - each.started_ms, limit_ms, usual)
            how_bad = worst_severity([own, blocks.of_transaction(each)])
            yield _open(each, each.started_ms, how_bad, snapshot, now_ms)


def coordinator_overdue(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield Ongoing transactions that their coordinators should have aborted `limits.late_grace_s` ago."""
    for each in snapshot.transactions:
        if each.state is not TransactionState.ONGOING or each.started_ms is None or _never_ends(each):
            continue
        ends_ms = each.started_ms + each.timeout_ms
        if now_ms - ends_ms > limits.late_grace_s * 1_000:
            yield _finding(
                "coordinator_overdue",
                each,
                Severity.CRITICAL,
                since_ms=ends_ms,
                summary=(
                    f"{each.transactional_id} should have been aborted by its coordinator at "
                    f"{format_clock(ends_ms)}"
                ),
                evidence=(
                    f"its timeout of {format_duration(each.timeout_ms)} has passed and coordinators check "
                    f"every 10 s; {_held(each)}"
                ),
                next_step=_after_late(each),
            )


def stuck_in_prepare(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield transactions that are decided and not complete after `limits.stuck_in_prepare_s`."""
    for each in snapshot.transactions:
        passed = now_ms - each.updated_ms > limits.stuck_in_prepare_s * 1_000
        if each.state is TransactionState.ONGOING or not passed:
            continue
        decided = "commit" if each.state is TransactionState.PREPARE_COMMIT else "abort"
        yield _finding(
            "stuck_in_prepare",
            each,
            Severity.CRITICAL,
            since_ms=each.updated_ms,
            summary=f"{each.transactional_id} is in {each.state}, but its {decided} markers are not written",
            evidence=f"in {each.state} since {format_clock(each.updated_ms)}, where markers take "
            f"milliseconds; {_held(each)}",
            next_step=(
                f"Bring back the leaders of {list_names(_names(each)) or 'its partitions'}: the coordinator "
                "goes on writing markers. Neither a fence nor an abort helps."
            ),
        )


def fencing_storm(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield ids that were taken over `limits.fencing_storm` times: two live producers share them.

    A warning while fewer than that are unambiguous: under transaction version 2 (KIP-890) a client that
    aborts and initialises again leaves the records of a takeover.
    """
    for each in snapshot.takeovers:
        if each.times < limits.fencing_storm:
            continue
        yield Finding(
            rule="fencing_storm",
            cluster=snapshot.cluster,
            subject=each.subject,
            severity=Severity.CRITICAL if each.unambiguous >= limits.fencing_storm else Severity.WARNING,
            since_ms=each.first_ms,
            summary=f"{_name(each)} is taken over repeatedly",
            evidence=(
                f"{rough_count(each.times)} takeovers of open transactions within "
                f"{format_duration(int(limits.fencing_storm_s * 1_000))}, each aborting what the other "
                f"producer had written{_doubt(each)}"
            ),
            next_step=(
                "Find the two producers that use this transactional id, and give each its own. Where there "
                "is only one, find out why it aborts and initialises again."
                if each.unambiguous < each.times
                else "Find the two producers that use this transactional id, and give each its own."
            ),
        )


def timeouts_in_a_row(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield ids, and applications, of which `limits.timeouts_in_a_row` transactions timed out, none else.

    Critical at three times as many: nothing of what they write arrives.
    """
    for each in snapshot.timeouts:
        if each.times < limits.timeouts_in_a_row:
            continue
        yield Finding(
            rule="timeouts_in_a_row",
            cluster=snapshot.cluster,
            subject=each.subject,
            severity=(
                Severity.CRITICAL
                if each.times >= _NOTHING_ARRIVES * limits.timeouts_in_a_row
                else Severity.WARNING
            ),
            since_ms=each.first_ms,
            summary=f"{_name(each)} times out repeatedly",
            evidence=(
                f"{rough_count(each.times)} transactions in a row were aborted by their coordinators and "
                f"none was committed, the last at {format_clock(each.last_ms)}; "
                f"transaction.timeout.ms is {format_duration(each.timeout_ms)}"
            ),
            next_step=(
                "See what keeps its producer from committing in time: a slow batch, a long pause, or a "
                "timeout shorter than the work. What was aborted is in Recoveries."
            ),
        )


def _open(
    each: OpenTransactionFacts,
    started_ms: int,
    how_bad: Severity,
    snapshot: Snapshot,
    now_ms: int,
) -> Finding:
    usual = snapshot.usual.get(each.application)
    timed_out = started_ms + each.timeout_ms < now_ms
    past = f"; {_past(usual, each.application)}" if usual else ""
    names = _names(each)
    blocked = f" and blocks {list_names(names)}" if names else ""
    return _finding(
        "open_too_long",
        each,
        how_bad,
        since_ms=started_ms,
        summary=f"{each.transactional_id} has been open since {format_clock(started_ms)}{blocked}",
        evidence=f"{_held(each)}; {_end(each, started_ms, timed_out)}{past}",
        next_step=_next_step(each, timed_out),
        deadline_ms=None if _never_ends(each) else started_ms + each.timeout_ms,
    )


def _finding(
    rule: str,
    each: OpenTransactionFacts,
    how_bad: Severity,
    *,
    since_ms: int,
    summary: str,
    evidence: str,
    next_step: str,
    deadline_ms: int | None = None,
) -> Finding:
    affected = [f"partition:{name}" for name in _names(each)] + [f"group:{name}" for name in each.waiting]
    affected += [f"query:{query.ident}" for query in each.queries]
    return Finding(
        rule=rule,
        cluster=each.cluster,
        subject=f"transaction:{each.transactional_id}",
        severity=how_bad,
        since_ms=since_ms,
        summary=summary,
        evidence=evidence,
        next_step=next_step,
        affected=tuple(affected),
        deadline_ms=deadline_ms,
    )


def _severity(each: OpenTransactionFacts, age_ms: int, limit_ms: int, usual_ms: int | None) -> Severity:
    if usual_ms is not None and age_ms <= usual_ms:
        return Severity.INFO
    return Severity.CRITICAL if _never_ends(each) and age_ms > limit_ms else Severity.WARNING


def _never_ends(each: OpenTransactionFacts) -> bool:
    return each.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS


def _names(each: OpenTransactionFacts) -> tuple[str, ...]:
    return tuple(f"{topic}-{n}" for topic, numbers in each.partitions for n in numbers)


def _held(each: OpenTransactionFacts) -> str:
    names = _names(each)
    if not names:
        return "it blocks no partition yet"
    held = f"read_committed consumers of {list_names(names)} are blocked at its first record"
    streams = [query.name for query in each.queries]
    groups = _there(each.waiting, "group", "groups")
    return "; ".join([held, *groups, *_there(streams, "streaming query", "streaming queries")])


def _there(names: Sequence[str], one: str, many: str) -> Iterator[str]:
    if names:
        noun, verb = (one, "is") if len(names) == 1 else (many, "are")
        yield f"{len(names):,} {noun} {verb} blocked there: {list_names(names)}"


def _end(each: OpenTransactionFacts, started_ms: int, timed_out: bool) -> str:
    if _never_ends(each):
        return "it takes part in a two-phase commit and never times out"
    ends, timeout = format_clock(started_ms + each.timeout_ms), format_duration(each.timeout_ms)
    if timed_out:
        return f"its timeout of {timeout} passed at {ends}"
    return f"its coordinator aborts it at {ends}, after {timeout}"


def _past(usual: UsualCommit, application: str) -> str:
    return f"99 of 100 commits of {application} take at most {format_duration(usual.p99_ms)}"


def _next_step(each: OpenTransactionFacts, timed_out: bool) -> str:
    if protection_reason(each.transactional_id, each.timeout_ms) is RefusalReason.TWO_PHASE:
        return "Find the system that decides it: only that one may commit or abort it."
    if timed_out:
        return "Its coordinator aborts it with its next scan; nothing is to be done yet."
    if protection_reason(each.transactional_id, each.timeout_ms) is RefusalReason.OWN_SINK:
        return _START_QUERY
    return "Find its producer; if that is gone, only the timeout or a fence ends it."


def _after_late(each: OpenTransactionFacts) -> str:
    words = "Check the broker that coordinates it: is it up, and does its log give a reason? "
    if protection_reason(each.transactional_id, each.timeout_ms) is RefusalReason.OWN_SINK:
        return f"{words}{_START_QUERY}"
    return f"{words}A fence makes the coordinator abort it."


_START_QUERY = (
    "Start its Spark query again: it commits what its ledger has prepared and aborts the rest. "
    "A fence would lose a prepared batch."
)


def _name(each: Repeated) -> str:
    return each.subject.partition(":")[2]


def _doubt(each: Repeated) -> str:
    """Return the alternative to ambiguous takeovers as a part of a sentence; "" where there are none."""
    if each.unambiguous >= each.times:
        return ""
    return (
        f" ({rough_count(each.times - each.unambiguous)} of them ambiguous: its client's own abort followed "
        "by a new initialisation leaves the same records)"
    )
