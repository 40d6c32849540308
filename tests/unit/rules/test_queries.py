"""Proves the rules about streaming queries: what is found, with which text, and when nothing is."""

from typing import Any

from fenceline.facts import Finding, Severity
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


def test_data_loss_gives_the_offsets_lost_and_the_deadline() -> None:
    lost = query_finding("data_loss_risk", source_position(100, log_start=350))
    assert lost.summary == "Records of payments-0 were deleted before orders read them"
    assert lost.evidence == "it has read payments-0 up to 100, and its log starts 200+ offsets behind that"
    assert (lost.affected, lost.deadline_ms) == (("partition:payments-0",), None)
    soon = query_finding("data_loss_risk", source_position(812, pace=1.0))
    assert soon.evidence.endswith("loses 60+ a minute: they meet at about 11:20:00 UTC")
    assert soon.deadline_ms is not None
    assert NOW_MS < soon.deadline_ms <= NOW_MS + 812_000


def test_a_deleted_topic_gives_what_was_read_of_it_and_since_when() -> None:
    places = [source_position(812, partition=n, absence=Absence(ago(60 + n), 0, 900)) for n in (0, 1)]
    finding = query_finding("topic_deleted", *places)
    assert (finding.subject, finding.severity, finding.since_ms) == ("query:q-1", "critical", ago(61))
    assert finding.summary == "orders: payments was deleted with 176 unread records"
    assert finding.evidence == "it has read payments-0 up to 812 of 900 and payments-1 up to 812 of 900"
    assert finding.affected == ("partition:payments-0", "partition:payments-1")


def query_finding(rule: str, *positions: SourcePosition, **facts: Any) -> Finding:
    (finding,) = findings_of(rule, queries=(query(positions=positions),), **facts)
    return finding


HELD = blocked_partition(lso_blocker(*OWNED, name="payments-7"))


@cases(
    (source_position(812, 90), [90], "at the LSO for as long as it is pinned"),
    (source_position(812, 70), [70], "it came there later"),
    (source_position(812, 60), [], "the limit itself is within"),
    (source_position(812, None), [90], "it was there when we came"),
    (source_position(813, 90), [], "past the LSO: it reads uncommitted"),
    (source_position(811, 90), [], "it has work before the LSO"),
    (source_position(812, 90, partition=3), [], "another partition"),
)
def test_query_blocked(position: SourcePosition, since_s: list[float], why: str) -> None:
    findings = findings_of("query_blocked", queries=(query(positions=(position,)),), partitions=(HELD,))
    assert [finding.since_ms for finding in findings] == [ago(seconds) for seconds in since_s], why


def test_a_blocked_query_names_the_blocker_and_the_confidence() -> None:
    finding = query_finding("query_blocked", source_position(), partitions=(HELD,))
    assert finding.summary == "orders is blocked at the LSO of payments-0"
    assert "blocked by payments-7. It is blocked if it reads read_committed" in finding.evidence
    assert finding.affected == ("partition:payments-0", "transaction:payments-7")
    unknown = query_finding("query_blocked", source_position(), partitions=(blocked_partition(),))
    assert "blocked by a transaction that is not known yet" in unknown.evidence


def test_lso_pinned_names_the_queries_blocked_on_the_partition() -> None:
    for position, affected in ((source_position(), ("query:q-1",)), (source_position(900), ())):
        assert query_finding("lso_pinned", position, partitions=(HELD,)).affected == affected
    standing = (BlockedQueryFacts("q-1", "orders"), BlockedQueryFacts("q-2", "audit"))
    (open_one,) = findings_of("open_too_long", transactions=(transaction(90, queries=standing),))
    assert "2 streaming queries are blocked there: orders and audit" in open_one.evidence
    assert open_one.affected[-2:] == ("query:q-1", "query:q-2")


AT_61_S = {"planned": 18, "finished": 17, "usual_ms": 2_000, "planned_ms": ago(61)}


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
    ("watermark_stalled", {"stall": None}, []),
    ("watermark_stalled", {"stall": Stall(NOW_MS, 9, ago(90))}, []),
    ("watermark_stalled", {"stall": Stall(NOW_MS, 10, ago(90))}, ["warning"]),
    # Never before a minute, and then five times as long as usual.
    ("batch_slow", {**AT_61_S, "planned_ms": ago(60)}, []),
    ("batch_slow", AT_61_S, ["warning"]),
    ("batch_slow", {**AT_61_S, "usual_ms": 13_000}, []),
    ("batch_slow", {**AT_61_S, "usual_ms": None}, []),
    ("batch_slow", {**AT_61_S, "finished": 18}, []),
    # Where its driver is gone it is a restart's case; where it may be gone, somebody is to look.
    ("batch_slow", {**AT_61_S, "alive": False}, []),
    ("batch_slow", {**AT_61_S, "alive": None}, ["warning"]),
    ("batch_slow", {**AT_61_S, **GONE}, []),
    ("batch_slow", {**AT_61_S, "finished": None}, ["warning"]),
)
def test_severity_of_a_query(rule: str, facts: dict[str, Any], severity: list[str]) -> None:
    assert severities_of(rule, **facts) == severity


@cases(
    ("data_loss_risk", source_position(812, log_start=812), [], "the next record is the first there is"),
    ("data_loss_risk", source_position(811, log_start=812), ["critical"], "one was deleted unread"),
    ("data_loss_risk", source_position(812, log_start=None), [], "the partition was not seen"),
    ("data_loss_risk", source_position(812, log_start=0, pace=None), [], "how fast it is cut is not known"),
    ("data_loss_risk", source_position(812, log_start=0, pace=0.0), [], "it is not cut"),
    ("data_loss_risk", source_position(3_700, log_start=100, pace=1.0), ["warning"], "they meet in 3,600 s"),
    ("data_loss_risk", source_position(3_701, log_start=100, pace=1.0), [], "3,601 s"),
    ("data_loss_risk", source_position(500, log_start=100, pace=1.0), ["critical"], "400 s: no time to lose"),
    ("data_loss_risk", source_position(5_812, log_start=5_800, pace=9.0), [], "nothing is unread"),
    ("topic_recreated", source_position(5_812), [], "at the end"),
    ("topic_recreated", source_position(5_813), ["critical"], "beyond it"),
    ("topic_recreated", source_position(5_813, 5), [], "the end may have been looked at before that batch"),
    ("topic_recreated", source_position(5_813, None), ["critical"], "since long before we came"),
    ("topic_recreated", source_position(5_813, high_watermark=None), [], "the partition was not seen"),
)
def test_severity_of_a_position(rule: str, position: SourcePosition, severity: list[str], why: str) -> None:
    assert severities_of(rule, positions=(position,)) == severity, why


def test_a_failed_query_gives_the_first_line_of_its_exception() -> None:
    exception = "\n  org.apache.spark.SparkException: boom\n\tat …"
    subject = query(state=QueryState.FAILED, alive=False, exception=exception, restart="runs batch 18")
    (finding,) = findings_of("query_failed", queries=(subject,))
    assert finding.evidence == "org.apache.spark.SparkException: boom"
    assert finding.next_step == "Mend the cause, then start it again: a restart runs batch 18."


def test_a_running_query_is_never_abandoned_and_limits_come_from_the_configuration() -> None:
    assert not QueryStatus("q", "q", alive=True).is_abandoned(NOW_MS)
    assert QueryStatus("q", "q", alive=False).is_abandoned(NOW_MS)
    limits = Limits(batch_prepared_s=20)
    assert not findings_of("batch_prepared", limits, queries=(query(sink_batches=(OPEN_ONLY,)),))
