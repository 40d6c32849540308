"""Proves the rules about transactions, about commits that lost records, and about applications: what is
found, how severe it is, and when nothing is."""

from dataclasses import replace
from typing import Any

from fenceline.facts import NOT_REPORTED, Finding, Severity, TransactionState, TransitionKind
from fenceline.losses.recoveries import DELETED, LostRecords
from fenceline.snapshot import (
    AbortedCommitFacts,
    ApplicationFigures,
    MissingMarker,
    OpenTransactionFacts,
    Repeated,
    UsualCommit,
)
from tests.cases import cases
from tests.unit.rules.factories import (
    OWNED,
    ago,
    blocked_group,
    blocked_offset,
    blocked_partition,
    finding_severities,
    findings_of,
    lso_blocker,
    transaction,
)

TWO_PHASE_S = 10**9


@cases(
    (transaction(59.9), None, "within the limit"),
    (transaction(60), None, "the limit itself is still within"),
    (transaction(60.1), "warning", "past the limit, its coordinator will end it"),
    (transaction(605, timeout_s=600), "warning", "past its timeout, but coordinators look every 10 s"),
    (transaction(616, timeout_s=600), "warning", "late by now, which another rule says"),
    (transaction(61, timeout_s=TWO_PHASE_S), "critical", "two-phase commit: nothing ever ends it"),
    (transaction(900, state=TransactionState.PREPARE_COMMIT), None, "decided: not waiting for its producer"),
    (transaction(None), None, "a record without a start says nothing about an age"),
)
def test_open_too_long(subject: OpenTransactionFacts, severity: str | None, why: str) -> None:
    told = finding_severities("open_too_long", transactions=(subject,))
    assert told == ([severity] if severity else []), why


@cases(
    (9.9, 50, 0.2, 600, None, "far beyond its past, but younger than any habit is looked at"),
    (10.1, 50, 0.2, 600, "warning", "fifty times as long as its commits take"),
    (10.1, 49, 0.2, 600, None, "too few commits to know what is usual"),
    (29, 50, 10, 600, None, "within three times its 99th percentile"),
    (31, 50, 10, 600, "warning", "beyond it"),
    (70, 50, 30, 600, "info", "past the limit, and usual for this application"),
    (91, 50, 30, 600, "warning", "past the limit and past what is usual"),
    (31, 50, 10, TWO_PHASE_S, "warning", "unusual, but not past the limit: nothing critical yet"),
    (91, 50, 30, TWO_PHASE_S, "critical", "past both, and nothing ever ends it"),
    (70, 49, 30, 600, "warning", "too few commits to excuse it"),
)
def test_open_too_long_depends_on_the_applications_usual_commit_time(
    age_s: float, commits: int, p99_s: float, timeout_s: float, severity: str | None, why: str
) -> None:
    usual = {"payments": UsualCommit(commits, int(p99_s * 1_000))}
    subject = transaction(age_s, timeout_s=timeout_s)
    told = finding_severities("open_too_long", transactions=(subject,), usual=usual)
    assert told == ([severity] if severity else []), why


@cases(
    (None, None, "warning", "nobody is blocked by it"),
    (90, None, "warning", "a group is, for a while"),
    (420, None, "critical", "for seven minutes"),
    (420, 200, "info", "its application's commits take so long"),
)
def test_open_too_long_severity_grows_with_what_it_blocks(
    waits_s: float | None, usual_s: float | None, severity: str, why: str
) -> None:
    facts = {
        "transactions": (transaction(430),),
        "partitions": (blocked_partition(lso_blocker(*OWNED, name="payments-7"), pinned_s_ago=425),),
        "groups": () if waits_s is None else (blocked_group(blocked_offset(waits_s)),),
        "usual": {} if usual_s is None else {"payments": UsualCommit(80, int(usual_s * 1_000))},
    }
    assert finding_severities("open_too_long", **facts) == [severity], why


def test_a_fence_is_not_suggested_for_a_transaction_of_the_sink() -> None:
    (finding,) = findings_of(
        "open_too_long", transactions=(transaction(61, name="orders-0a1b2c3d-p3-g2-b1-s17"),)
    )
    assert finding.next_step.startswith("Start its Spark query again")
    (other,) = findings_of("open_too_long", transactions=(transaction(61),))
    assert "or a fence ends it" in other.next_step


def test_open_too_long_gives_what_an_operator_needs() -> None:
    waiting = transaction(120, waiting=("audit", "billing"))
    finding = open_too_long(waiting, usual={"payments": UsualCommit(80, 900)})
    assert (finding.subject, finding.since_ms) == ("transaction:payments-7", ago(120))
    partitions = [f"partition:payments-{n}" for n in range(4)]
    assert finding.affected == (*partitions, "group:audit", "group:billing")
    assert "payments-0, payments-1, payments-2 and 1 more" in finding.evidence
    assert "2 groups are blocked there: audit and billing" in finding.evidence
    assert "aborts it at" in finding.evidence
    assert "99 of 100 commits of payments take at most 900 ms" in finding.evidence


def open_too_long(subject: OpenTransactionFacts, **facts: Any) -> Finding:
    (finding,) = findings_of("open_too_long", transactions=(subject,), **facts)
    return finding


def test_open_too_long_has_its_timeout_as_deadline() -> None:
    for timeout_s, deadline_ms in ((900, ago(-780)), (60, ago(60)), (TWO_PHASE_S, None)):
        assert open_too_long(transaction(120, timeout_s=timeout_s)).deadline_ms == deadline_ms
    unreported = replace(transaction(3_600), timeout_ms=NOT_REPORTED)
    assert findings_of("coordinator_overdue", transactions=(unreported,)) == []
    found = open_too_long(unreported)
    assert found.deadline_ms is None
    assert "when it times out is not known" in found.evidence


@cases(
    (transaction(74, timeout_s=60), [], "past its timeout, within the coordinator's scan"),
    (transaction(75.1, timeout_s=60), [15.1], "15 s past its timeout"),
    (transaction(20, timeout_s=3), [17], "also where it is not open for long"),
    (transaction(10**6, timeout_s=TWO_PHASE_S), [], "a two-phase commit is never late"),
    (transaction(900, timeout_s=60, state=TransactionState.PREPARE_ABORT), [], "decided; another rule's"),
    (transaction(None, timeout_s=60), [], "no start, no age"),
)
def test_coordinator_overdue_counts_from_the_timeout(
    subject: OpenTransactionFacts, since_s: list[float], why: str
) -> None:
    found = findings_of("coordinator_overdue", transactions=(subject,))
    assert [(each.severity, each.since_ms) for each in found] == [
        (Severity.CRITICAL, ago(seconds)) for seconds in since_s
    ], why
    assert all("partition:payments-0" in each.affected for each in found)


@cases(
    (TransactionState.PREPARE_COMMIT, 14.9, [], "markers may take a moment while a leader moves"),
    (TransactionState.PREPARE_COMMIT, 15.1, [ago(15.1)], "decided, and no marker for 15 s"),
    (TransactionState.PREPARE_ABORT, 15.1, [ago(15.1)], "an abort may be stuck too"),
    (TransactionState.ONGOING, 900, [], "nothing is decided"),
)
def test_stuck_in_prepare(state: TransactionState, decided_s: float, since_ms: list[int], why: str) -> None:
    subject = transaction(900, state=state, decided_s_ago=decided_s)
    found = findings_of("stuck_in_prepare", transactions=(subject,))
    assert [each.since_ms for each in found] == since_ms, why


def stuck(state: TransactionState, *missing: MissingMarker) -> Finding:
    subject = transaction(900, state=state, decided_s_ago=20, missing=missing)
    (finding,) = findings_of("stuck_in_prepare", transactions=(subject,))
    return finding


def test_stuck_in_prepare_names_leaders_that_take_no_marker() -> None:
    no_leader = MissingMarker("payments", 2, None, (2,))
    one = stuck(TransactionState.PREPARE_COMMIT, no_leader)
    state = "payments-7 is in PrepareCommit"
    assert one.summary == f"{state}, but its commit marker is not confirmed in payments-2"
    assert "; payments-2 has no leader: its replicas are on broker 2; " in one.evidence
    assert "consumers of payments-2 are blocked" in one.evidence
    assert one.next_step.startswith("Bring back broker 2: ")
    missing = MissingMarker("payments", 1, 3, (3, 1)), MissingMarker("payments", 2, None, (2, 4))
    two = stuck(TransactionState.PREPARE_ABORT, *missing)
    assert "its abort marker is not confirmed in payments-1 and payments-2" in two.summary
    assert "payments-1 is led by broker 3, which has not confirmed it" in two.evidence
    assert two.next_step.startswith("Bring back the leaders of payments-1 and payments-2: ")


@cases(
    (3, 3, [], "a few restarts in the middle of work"),
    (4, 4, ["critical"], "two live owners"),
    (40, 20, ["critical"], "enough of them without the ambiguous ones"),
    (4, 3, ["warning"], "a client that aborts and initialises again leaves the same records"),
    (40, 0, ["warning"], "the same"),
)
def test_fencing_storm(times: int, unambiguous: int, severity: list[str], why: str) -> None:
    seen = Repeated("transaction:payments-7", times, unambiguous, ago(500), ago(5))
    told = findings_of("fencing_storm", takeovers=(seen,))
    assert [each.severity.value for each in told] == severity, why
    assert all(each.since_ms == ago(500) for each in told)
    is_shown = severity == ["critical"]
    assert all(("is taken over" in each.summary) == is_shown for each in told)
    assert all(("or one that restarts" in each.summary) != is_shown for each in told)
    if is_shown:
        assert all(("ambiguous" in each.evidence) == (unambiguous < times) for each in told)


@cases(
    ("transaction:payments-7", 2, [], "twice may happen"),
    ("transaction:payments-7", 3, ["warning"], "three in a row"),
    ("application:payments", 3, ["warning"], "of ids that are used once each"),
    ("transaction:payments-7", 9, ["critical"], "nothing it writes arrives any more"),
)
def test_timeouts_in_a_row(subject: str, times: int, severity: list[str], why: str) -> None:
    seen = Repeated(subject, times, times, ago(500), ago(5), 60_000)
    found = findings_of("timeouts_in_a_row", timeouts=(seen,))
    assert [each.severity.value for each in found] == severity, why
    assert {(each.subject, each.since_ms) for each in found} <= {(subject, ago(500))}


RULE = "aborted_under_commit"
MARKED = LostRecords("payments", 2, 1_000, 1_004, 5, True)
ONE = LostRecords("payments", 3, 7, 7, 1, True)
GONE = LostRecords("orders", 0, 10, 29, None, False, DELETED, deleted=True)


def commit(*lost: LostRecords, name: str = "held-3", ago_s: float = 60) -> AbortedCommitFacts:
    return AbortedCommitFacts(name, 7, ago(ago_s + 30), ago(ago_s), lost)


BY_MARKER = "held-3: aborted by a marker before the commit"


@cases(
    ((MARKED,), f"{BY_MARKER}, 5 records lost", "payments-2: 5 records, offsets 1,000 to 1,004"),
    (
        (MARKED, ONE),
        f"{BY_MARKER}, 6 records lost",
        "payments-2: 5 records, offsets 1,000 to 1,004 and payments-3: 1 record, offset 7",
    ),
    (
        (GONE,),
        "held-3: its topic was deleted before the commit, at most 20 records lost",
        "orders-0: offsets 10 to 29 at most (the topic was deleted)",
    ),
    (
        (GONE, MARKED),
        "held-3: aborted by a marker and its topic was deleted before the commit, at most 25 records lost",
        "payments-2: 5 records",
    ),
)
def test_a_commit_that_lost_records(lost: tuple[LostRecords, ...], summary: str, evidence: str) -> None:
    (found,) = findings_of(RULE, aborted_commits=(commit(*lost),))
    assert found.summary == summary
    assert evidence in found.evidence
    assert (found.subject, found.severity) == ("transaction:held-3", Severity.CRITICAL)
    assert (found.since_ms, found.instance) == (ago(60), f"7@{ago(90)}")
    assert ("Write the lost records again" in found.next_step) is (MARKED in lost)


def test_of_one_id_the_newest_commit_is_named() -> None:
    told = findings_of(RULE, aborted_commits=(commit(ONE), commit(MARKED, ago_s=600), commit(ONE, name="b")))
    assert [each.subject for each in told] == ["transaction:held-3", "transaction:b"]
    assert "1 record lost" in told[0].summary
    assert "1 earlier commit of this id lost records" in told[0].evidence


COMMIT, TIMEOUT = TransitionKind.COMMIT, TransitionKind.TIMEOUT
CLIENT, REINIT = TransitionKind.CLIENT_ABORT, TransitionKind.REINIT


def application(**figures: object) -> tuple[ApplicationFigures, ...]:
    return (ApplicationFigures("payments", **figures),)  # type: ignore[arg-type]


@cases(
    ({COMMIT: 0, TIMEOUT: 19}, None, "too few ends to speak of a share"),
    ({COMMIT: 17, TIMEOUT: 3}, None, "15 %"),
    ({COMMIT: 16, TIMEOUT: 4}, "warning", "the share itself"),
    ({COMMIT: 10, CLIENT: 5, TIMEOUT: 5}, "warning", "of any cause"),
    ({TIMEOUT: 20}, "critical", "nothing is committed at all"),
    ({COMMIT: 20, TransitionKind.EMPTY_ABORT: 500, REINIT: 500}, None, "an abort of nothing loses nothing"),
    ({}, None, "nothing happened"),
)
def test_abort_ratio(window: dict[TransitionKind, int], severity: str | None, why: str) -> None:
    told = finding_severities("abort_ratio", applications=application(window=window))
    assert told == ([severity] if severity else []), why


def test_abort_ratio_names_the_most_frequent_cause() -> None:
    window = {COMMIT: 10, CLIENT: 5, TIMEOUT: 7}
    (finding,) = findings_of("abort_ratio", applications=application(window=window))
    assert finding.subject == "application:payments"
    assert finding.summary == "payments aborts more than 50 % of the transactions"
    assert "most of them timeout" in finding.evidence
    assert finding.since_ms is None


def test_no_figure_is_surer_than_the_verdicts_that_it_counts() -> None:
    """Counts hold ambiguous verdicts too: an application that aborts and starts again leaves takeovers."""
    (ratio,) = findings_of(
        "abort_ratio", applications=application(window={COMMIT: 5, TransitionKind.TAKEOVER: 20})
    )
    assert "most of them takeover, or own abort before a new start" in ratio.evidence
    (fenced,) = findings_of("abort_ratio", applications=application(window={TransitionKind.ADMIN_FENCE: 20}))
    assert "most of them fence, or takeover by a producer with a timeout of 30 s" in fenced.evidence


@cases(
    (600.0, "", None, "one checkpoint a minute at parallelism 10: the limit itself"),
    (601.0, "payments-7", "warning", "beyond it"),
    (6_001.0, "payments-0-77", "critical", "ten times that"),
    (6_001.0, "payments-0a1b2c3d-p2999-g1-s0", None, "the first start of a sink with 3,000 tasks"),
    (6_001.0, "payments-0a1b2c3d-p2999-g1-b0-s0", "critical", "a sink of old, with other ids each time"),
)
def test_id_explosion(made: float, sample_id: str, severity: str | None, why: str) -> None:
    figures = application(hour={TransitionKind.INIT: made}, sample_id=sample_id)
    told = finding_severities("id_explosion", applications=figures)
    assert told == ([severity] if severity else []), why


def test_id_explosion_estimates_the_ids_that_coordinators_keep() -> None:
    """FLIP-511's arithmetic: 7 d x 24 h x 60 checkpoints an hour x parallelism."""
    (finding,) = findings_of("id_explosion", applications=application(hour={TransitionKind.INIT: 60.0 * 100}))
    assert finding.summary == "payments makes 6,000+ transactional ids an hour"
    assert "1,000,000+ ids" in finding.evidence  # 60 * 100 * 168 = 1,008,000
