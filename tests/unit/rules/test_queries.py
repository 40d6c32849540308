"""Proves the rules about streaming queries by cases: what is found, with which text, and when
nothing is.
"""

from typing import Any

from fenceline.facts import Severity
from fenceline.limits import Limits
from fenceline.snapshot import BlockedQueryFacts
from fenceline.spark.queries import Absence, Broken, QueryStatus, SinkBatch, SourcePosition, Stall
from fenceline.spark.records import Damage, QueryState
from tests.cases import cases
from tests.unit.rules.factories import (
    NOW_MS,
    OWNED,
    ago,
    blocked_partition,
    finding_severities,
    findings_of,
    lso_blocker,
    query,
    sink_batch,
    source_position,
    transaction,
)

WEEK_S = 7 * 86_400


def severities_of(rule: str, **facts: Any) -> list[str]:
    return finding_severities(rule, queries=(query(**facts),))


GONE = {"alive": None, "moved_ms": ago(WEEK_S + 1)}


@cases(
    ({"restart_severity": Severity.CRITICAL}, ["critical"], "a restart would fail"),
    ({"restart_severity": Severity.WARNING}, ["warning"], "only with a newer Spark"),
    ({"restart_severity": Severity.INFO}, [], "it runs its batch again: what it is for"),
    ({"restart_severity": None}, [], "all is well"),
    ({"restart_severity": Severity.CRITICAL, **GONE}, [], "abandoned for a week"),
    ({"restart_severity": Severity.CRITICAL, "alive": None}, ["critical"], "no listener, moved lately"),
    (
        {
            "restart_severity": Severity.WARNING,
            "unusable": (Broken("offsets/3", Damage.DENIED, "no permission"),),
        },
        [],
        "what decides may not be read",
    ),
)
def test_restart_fails(facts: dict[str, Any], severity: list[str], why: str) -> None:
    assert severities_of("restart_fails", **facts) == severity, why


def test_restart_fails_gives_what_spark_would_do_and_the_remedy() -> None:
    facts = {"restart": "fails: batch 16 doesn't exist", "remedy": "restore offsets/16 from a copy"}
    (finding,) = findings_of("restart_fails", queries=(query(restart_severity=Severity.CRITICAL, **facts),))
    assert finding.subject == "query:q-1"
    assert finding.evidence == "A restart fails: batch 16 doesn't exist"
    assert finding.next_step == "Before any restart: restore offsets/16 from a copy."


OPEN_ONLY = sink_batch()
COMMITTED = sink_batch(open=())
ABORTED = sink_batch(open=("orders-b",), aborted=("orders-a",))
RECORDED = sink_batch(open=(), aborted=("orders-a",), recorded=True)


@cases(
    (sink_batch(9.9), [], [], "within the limit: a commit under way"),
    (OPEN_ONLY, ["critical"], [], "nobody carries it out"),
    (sink_batch(open=(), unknown=("orders-a",)), ["critical"], [], "nothing tells what became of it"),
    (COMMITTED, ["warning"], [], "committed, only the ledger does not know"),
    (ABORTED, [], ["critical"], "one of two was aborted: it is lost, not late"),
    (RECORDED, [], ["warning"], "somebody took note of the loss"),
    (sink_batch(86_401, open=(), aborted=("a",), recorded=True), [], [], "a day ago"),
    (sink_batch(86_401, open=(), aborted=("a",)), [], ["critical"], "nobody took note: it stays"),
)
def test_batches_of_the_sink(batch: SinkBatch, prepared: list[str], lost: list[str], why: str) -> None:
    assert severities_of("batch_prepared", sink_batches=(batch,)) == prepared, why
    assert severities_of("batch_lost", sink_batches=(batch,)) == lost, why


@cases(
    (True, 3_600, "warning", "its driver is there, and has an hour"),
    (True, 601, "warning", "more than ten minutes"),
    (True, 600, "critical", "ten minutes until it is lost"),
    (False, 3_600, "critical", "nobody is there to commit it"),
    (None, 3_600, "critical", "nobody is known to be"),
)
def test_a_prepared_batch_is_more_severe_as_its_expiry_approaches(
    alive: bool | None, left_s: int, severity: str, why: str
) -> None:
    batch = sink_batch(expires_ms=NOW_MS + 1_000 * left_s)
    assert severities_of("batch_prepared", sink_batches=(batch,), alive=alive) == [severity], why


def test_texts_of_a_prepared_batch_do_not_change_while_time_passes() -> None:
    batches = (sink_batch(), sink_batch(batch_id=18, expires_ms=NOW_MS + 30_000, open=("orders-c",)))
    subject = query(sink_batches=batches, alive=False)
    (finding,) = findings_of("batch_prepared", queries=(subject,))
    (later,) = findings_of("batch_prepared", queries=(subject,), now_ms=NOW_MS + 5_000)
    assert finding == later
    assert finding.summary == (
        "Batch 17 and batch 18 of orders are prepared and the driver is gone (stopped): a restart finishes "
        "them until 11:07:10 UTC"
    )
    assert finding.evidence.endswith("2,000 records, 3 transactions not committed; driver: stopped")
    assert finding.since_ms == ago(11)
    assert finding.affected == tuple(f"transaction:orders-{each}" for each in "abc")
    assert "recoverAndCommit" in finding.next_step
    assert finding.deadline_ms == NOW_MS + 30_000


def test_a_lost_batch_names_ids_and_input() -> None:
    (finding,) = findings_of(
        "batch_lost", queries=(query(sink_batches=(ABORTED._replace(input="source 0: …"),)),)
    )
    assert finding.summary == "batch 17 of orders is lost in part: decided, then aborted"
    assert finding.evidence == (
        "orders-a was aborted before batch 17 is committed; up to 1,000 records; source 0: …"
    )
    assert finding.affected == ("transaction:orders-a",)


@cases(
    (source_position(812, log_start=812), [], "the next record is the first there is"),
    (source_position(811, log_start=812), ["critical"], "one was deleted unread"),
    (source_position(812, log_start=None), [], "the partition was not seen"),
    (source_position(812, log_start=0, pace=None), [], "how fast it is cut is not known"),
    (source_position(812, log_start=0, pace=0.0), [], "it is not cut"),
    (source_position(3_700, log_start=100, pace=1.0), ["warning"], "3,600 s until they meet"),
    (source_position(3_701, log_start=100, pace=1.0), [], "3,601 s"),
    (source_position(500, log_start=100, pace=1.0), ["critical"], "400 s: no time to lose"),
    (source_position(5_812, log_start=5_800, pace=9.0), [], "nothing is unread"),
)
def test_data_loss_risk(position: SourcePosition, severity: list[str], why: str) -> None:
    assert severities_of("data_loss_risk", positions=(position,)) == severity, why


def test_data_loss_gives_the_offsets_lost_and_the_deadline() -> None:
    (lost,) = findings_of(
        "data_loss_risk", queries=(query(positions=(source_position(100, log_start=350),)),)
    )
    assert lost.summary == "Records of payments-0 were deleted before orders read them"
    assert lost.evidence == "it has read payments-0 up to 100, and its log starts 200+ offsets behind that"
    assert lost.affected == ("partition:payments-0",)
    (soon,) = findings_of("data_loss_risk", queries=(query(positions=(source_position(812, pace=1.0),)),))
    assert soon.evidence.endswith("loses 60+ a minute: they meet at about 11:20:00 UTC")
    assert soon.deadline_ms is not None
    assert NOW_MS < soon.deadline_ms <= NOW_MS + 812_000
    assert lost.deadline_ms is None


@cases(
    (source_position(5_812), False, "at the end"),
    (source_position(5_813), True, "beyond it"),
    (source_position(5_813, 5), False, "the end may have been looked at before that batch"),
    (source_position(5_813, None), True, "since long before we came"),
    (source_position(5_813, high_watermark=None), False, "the partition was not seen"),
)
def test_topic_recreated(position: SourcePosition, is_told: bool, why: str) -> None:
    assert severities_of("topic_recreated", positions=(position,)) == ["critical"] * is_told, why


def test_a_deleted_topic_gives_what_was_read_of_it_and_since_when() -> None:
    places = [source_position(812, partition=n, absence=Absence(ago(60 + n), 0, 900)) for n in (0, 1)]
    (finding,) = findings_of("topic_deleted", queries=(query(positions=tuple(places)),))
    assert (finding.subject, finding.severity, finding.since_ms) == ("query:q-1", "critical", ago(61))
    assert finding.summary == "orders: payments was deleted with 176 unread records"
    assert finding.evidence == "it has read payments-0 up to 812 of 900 and payments-1 up to 812 of 900"
    assert finding.affected == ("partition:payments-0", "partition:payments-1")


HELD = blocked_partition(lso_blocker(*OWNED, name="payments-7"))


@cases(
    (source_position(812, 90), 90, "at the LSO for as long as it is pinned"),
    (source_position(812, 70), 70, "it came there later"),
    (source_position(812, 60), None, "the limit itself is within"),
    (source_position(812, None), 90, "it was there when we came"),
    (source_position(813, 90), None, "past the LSO: it reads uncommitted"),
    (source_position(811, 90), None, "it has work before the LSO"),
    (source_position(812, 90, partition=3), None, "another partition"),
)
def test_query_blocked(position: SourcePosition, since_s: float | None, why: str) -> None:
    findings = findings_of("query_blocked", queries=(query(positions=(position,)),), partitions=(HELD,))
    wanted = [] if since_s is None else [ago(since_s)]
    assert [each.since_ms for each in findings] == wanted, why


def test_a_blocked_query_names_the_blocker_and_the_confidence() -> None:
    (finding,) = findings_of(
        "query_blocked", queries=(query(positions=(source_position(),)),), partitions=(HELD,)
    )
    assert finding.summary == "orders is blocked at the LSO of payments-0"
    assert "blocked by payments-7. It is blocked if it reads read_committed" in finding.evidence
    assert finding.affected == ("partition:payments-0", "transaction:payments-7")
    (unknown,) = findings_of(
        "query_blocked", queries=(query(positions=(source_position(),)),), partitions=(blocked_partition(),)
    )
    assert "blocked by a transaction that is not known yet" in unknown.evidence


def test_lso_pinned_names_the_queries_blocked_on_the_partition() -> None:
    subject = query(positions=(source_position(),))
    (held,) = findings_of("lso_pinned", queries=(subject,), partitions=(HELD,))
    assert held.affected == ("query:q-1",)
    (past,) = findings_of(
        "lso_pinned", queries=(query(positions=(source_position(900),)),), partitions=(HELD,)
    )
    assert past.affected == ()
    standing = (BlockedQueryFacts("q-1", "orders"), BlockedQueryFacts("q-2", "audit"))
    (open_one,) = findings_of("open_too_long", transactions=(transaction(90, queries=standing),))
    assert "2 streaming queries are blocked there: orders and audit" in open_one.evidence
    assert open_one.affected[-2:] == ("query:q-1", "query:q-2")


@cases((None, False), (Stall(NOW_MS, 9, ago(90)), False), (Stall(NOW_MS, 10, ago(90)), True))
def test_watermark_stalled(stall: Stall | None, is_told: bool) -> None:
    assert severities_of("watermark_stalled", stall=stall) == ["warning"] * is_told


RUNNING = {"planned": 18, "finished": 17, "usual_ms": 2_000}


@cases(
    ({**RUNNING, "planned_ms": ago(60)}, False, "never before that"),
    ({**RUNNING, "planned_ms": ago(61)}, True, "five times two seconds, and more than a minute"),
    ({**RUNNING, "planned_ms": ago(61), "usual_ms": 13_000}, False, "five times 13 s are 65"),
    ({**RUNNING, "planned_ms": ago(61), "usual_ms": None}, False, "nobody knows what is usual"),
    ({**RUNNING, "planned_ms": ago(61), "finished": 18}, False, "it is finished"),
    ({**RUNNING, "planned_ms": ago(61), "alive": False}, False, "its driver is gone: a restart's case"),
    ({**RUNNING, "planned_ms": ago(61), "alive": None}, True, "it may be gone; somebody is to look"),
    ({**RUNNING, "planned_ms": ago(61), **GONE}, False, "abandoned"),
    ({**RUNNING, "planned_ms": ago(61), "finished": None}, True, "its first one"),
)
def test_batch_slow(facts: dict[str, Any], is_told: bool, why: str) -> None:
    assert severities_of("batch_slow", **facts) == ["warning"] * is_told, why


@cases(
    ("two_writers", {"writers": ""}, []),
    ("two_writers", {"writers": "two folders"}, ["critical"]),
    ("query_failed", {"state": QueryState.FAILED, "alive": False}, ["critical"]),
    ("query_failed", {"state": QueryState.FAILED, "alive": False, "moved_ms": ago(WEEK_S + 1)}, []),
    ("query_failed", {"state": QueryState.RUNNING, "exception": "of the run before"}, []),
    ("query_failed", {"state": QueryState.STOPPED, "alive": False}, []),
    ("checkpoint_unreadable", {"error": "permission denied"}, ["warning"]),
    ("checkpoint_unreadable", {"error": "the folder is gone", **GONE}, []),
    ("checkpoint_unreadable", {"unusable": (Broken("a", Damage.NEWER, "v9"),)}, ["warning"]),
    ("checkpoint_unreadable", {"unusable": (Broken("a", Damage.TORN, "cut"),)}, []),
)
def test_others(rule: str, facts: dict[str, Any], severity: list[str]) -> None:
    assert severities_of(rule, **facts) == severity


def test_a_failed_query_gives_the_first_line_of_its_exception() -> None:
    exception = "\n  org.apache.spark.SparkException: boom\n\tat …"
    subject = query(state=QueryState.FAILED, alive=False, exception=exception, restart="runs batch 18")
    (finding,) = findings_of("query_failed", queries=(subject,))
    assert finding.evidence == "org.apache.spark.SparkException: boom"
    assert finding.next_step == "Mend the cause, then start it again: a restart runs batch 18."


LATE_BATCH = {"queries": (query(sink_batches=(OPEN_ONLY,)),)}


def test_limits_come_from_the_configuration() -> None:
    limits = Limits(batch_prepared_s=20)
    assert not findings_of("batch_prepared", limits, **LATE_BATCH)


def test_a_running_query_is_never_abandoned() -> None:
    assert not QueryStatus("q", "q", alive=True).is_abandoned(NOW_MS)
    assert QueryStatus("q", "q", alive=False).is_abandoned(NOW_MS)
