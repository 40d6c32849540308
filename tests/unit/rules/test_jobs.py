"""Proves the rules about audited pipelines and Flink jobs: what a violation states, whom it affects and what
to do; when a decided commit is late, how bad that is and what is lost; and when the rules are silent."""

from typing import Any

from fenceline.audit.manifest import AuditedBatch, AuditedRange, AuditMode, AuditVerdict, find_violation
from fenceline.engines.flink.restore import CommitFate, DecidedTransaction, FlinkJobFacts
from fenceline.facts import Finding, Severity
from fenceline.formatting import format_clock
from tests.audit_manifests import audit_manifest, proved_batch
from tests.cases import cases
from tests.unit.rules.factories import ago, finding_severities, findings_of, violation

LOSS, AGAIN = AuditedRange("orders", 3, 5, 8), AuditedRange("enriched", 0, 9, 10)
REPLAY = "spark_pipeline/replay.py"


def finding(**facts: Any) -> Finding:
    (found,) = findings_of("audit_violated", audits=(violation(**facts),))
    return found


def test_a_violated_pipeline_is_critical_since_its_oldest_batch() -> None:
    found = finding(losses=(LOSS,))
    assert (found.subject, found.severity) == ("pipeline:orders_enrich", Severity.CRITICAL)
    assert found.since_ms == ago(600)
    assert found.affected == ("query:q-1", "partition:orders-3")
    assert findings_of("audit_violated") == []


@cases(
    ({}, "3 records are missing in enriched, compared with orders", "the figure, and between what"),
    ({"missing": 1}, "1 record is missing in enriched, compared with orders", "one"),
    ({"missing": 0, "duplicated": 1_204},
     "1,204 records are duplicated in enriched, compared with orders", "duplicates alone"),
    ({"duplicated": 1},
     "3 records are missing and 1 record is duplicated in enriched, compared with orders", "both"),
    ({"sources": (), "targets": ()}, "3 records are missing in its output, compared with its input",
     "no topic is known"),
)  # fmt: skip
def test_its_summary_is_a_fact(facts: dict[str, Any], summary: str, why: str) -> None:
    assert finding(**facts).summary == summary, why


@cases(
    ({}, "by counts in batch 1,203", "a batch where no offset is known"),
    ({"batches": (1, 2, 3, 4)}, "by counts in batches 1, 2, 3 and 1 more", "the first ones"),
    ({"batches": ()}, "by counts", "they left the manifest"),
    ({"losses": (LOSS,), "duplicates": (AGAIN,), "duplicated": 1},
     "by counts in batch 1,203; missing: orders-3 at 5 to 7; duplicated: enriched-0 at 9", "with ranges"),
    ({"mode": AuditMode.KEYS, "batches": (), "losses": (LOSS, AGAIN, LOSS, AGAIN)},
     "by key; missing: orders-3 at 5 to 7, enriched-0 at 9, orders-3 at 5 to 7 and 1 more",
     "the first ones"),
)  # fmt: skip
def test_its_evidence_has_batches_and_offsets(facts: dict[str, Any], evidence: str, why: str) -> None:
    wanted = f"the audit of orders_enrich found it {evidence}"
    assert finding(**facts).evidence == wanted, why


@cases(
    ({"losses": (LOSS,)}, True, False, False, "the ranges that are missing can be written"),
    ({}, True, True, False, "which records are missing is not known yet"),
    ({"missing": 0, "duplicated": 2}, False, False, True, "nothing is to be written again"),
    ({"duplicated": 2, "losses": (LOSS,)}, True, False, True, "both"),
)
def test_the_next_step_is_of_what_was_found(
    facts: dict[str, Any], replay: bool, keys: bool, producers: bool, why: str
) -> None:
    step = finding(**facts).next_step
    found = REPLAY in step, "--mode keys" in step, "See which producers write to enriched" in step
    assert found == (replay, keys, producers), why


TABLE = "jdbc:postgresql://db/shop#orders"


@cases(
    ({"losses": (LOSS,)}, "process the missing records again", "a replay writes to a topic alone"),
    ({"missing": 0, "duplicated": 2}, "as duplicate_keys (docs/audit.md). Fix the sink", "no producer"),
    ({"sources": ("parquet:/in",)}, "as loss_keys (docs/audit.md). Fix", "a table has no offsets"),
)
def test_the_next_step_for_a_table_names_no_tool_of_topics(
    facts: dict[str, Any], words: str, why: str
) -> None:
    step = finding(mode=AuditMode.KEYS, batches=(), targets=(TABLE,), **facts).next_step
    assert words in step, why
    assert not any(tool in step for tool in (REPLAY, "--mode keys", "producers"))


def batch(number: int, at_ms: int | None, *losses: AuditedRange) -> AuditedBatch:
    return AuditedBatch(number, AuditVerdict.VIOLATED, at_ms, missing=1, losses=losses)


RUN_MS = audit_manifest().at_ms


@cases(
    ((proved_batch(4), batch(3, 300), batch(2, 200)), 200, (2, 3), "the oldest that is violated"),
    ((batch(3, None), batch(2, 250)), 250, (2, 3), "the ledger has lost one"),
    ((batch(3, None),), RUN_MS, (3,), "it has lost all"),
    ((proved_batch(4),), RUN_MS, (), "the batch has left the manifest"),
)
def test_a_manifest_becomes_a_violation_where_something_deviates(
    batches: tuple[AuditedBatch, ...], since_ms: int, numbers: tuple[int, ...], why: str
) -> None:
    found = find_violation("orders", audit_manifest(missing=1, batches=batches))
    assert found is not None
    assert (found.pipeline, found.since_ms, found.batches) == ("orders", since_ms, numbers), why
    for fields in {}, {"proved_through": None}:
        assert find_violation("orders", audit_manifest(**fields)) is None


def test_a_violation_has_the_first_ranges_alone() -> None:
    losses = tuple(AuditedRange("orders", 0, each, each + 1) for each in range(15))
    batches = (batch(3, 300, *losses), batch(2, 200, *losses))
    found = find_violation("orders", audit_manifest(missing=30, batches=batches, duplicates=(AGAIN,)))
    assert found is not None
    assert found.losses == (*losses, *losses[:5])
    assert found.duplicates == (AGAIN,)


PENDING, LOST = "flink_commit_pending", "flink_commit_lost"


def open_commit(left_s: float | None = 3_600, name: str = "copy-0-41") -> DecidedTransaction:
    return DecidedTransaction(name, CommitFate.PENDING, None if left_s is None else ago(-left_s))


def lost_commit(ago_s: float = 60, name: str = "copy-1-41") -> DecidedTransaction:
    return DecidedTransaction(name, CommitFate.LOST, aborted_ms=ago(ago_s))


def job(*transactions: DecidedTransaction, age_s: float | None = 60, **fields: Any) -> FlinkJobFacts:
    completed_ms = None if age_s is None else ago(age_s)
    return FlinkJobFacts("job@1", "copy", "chk-41", completed_ms, ("copy",), transactions, **fields)


@cases(
    (job(open_commit()), ["warning"], "an hour is left"),
    (job(open_commit(601)), ["warning"], "just more than the limit"),
    (job(open_commit(599)), ["critical"], "less than loss_critical_s"),
    (job(open_commit(-5)), ["critical"], "any moment"),
    (job(open_commit(), open_commit(60, "copy-1-41")), ["critical"], "the first counts"),
    (job(open_commit(None)), ["warning"], "two-phase commit: no coordinator aborts it"),
    (job(open_commit(), age_s=9), [], "a running job is about to commit it"),
    (job(open_commit(), age_s=None), ["warning"], "the store reports no time"),
    (job(lost_commit()), [], "nothing is open"),
    (job(), [], "nothing is left"),
)
def test_a_decided_commit_is_late(facts: FlinkJobFacts, severities: list[str], why: str) -> None:
    assert finding_severities(PENDING, flink_jobs=(facts,)) == severities, why


def test_a_late_commit_names_when_records_are_lost_and_whom_to_commit() -> None:
    (found,) = findings_of(PENDING, flink_jobs=(job(open_commit(), open_commit(700, "copy-1-41")),))
    assert found.subject == "flink_job:job@1"
    assert found.summary == "copy: 2 transactions of chk-41 are decided and not committed"
    assert found.affected == ("transaction:copy-0-41", "transaction:copy-1-41")
    assert (found.since_ms, found.deadline_ms) == (ago(60), ago(-700))
    assert format_clock(ago(-700)) in found.evidence
    assert "Commit what the checkpoint decided" in found.next_step


@cases(
    (job(lost_commit()), True, "aborted a minute ago"),
    (job(lost_commit(86_401)), False, "reported for a day"),
    (job(lost_commit(), newer_job="other@2"), False, "another run has decided otherwise"),
    (job(open_commit()), False, "open still"),
    (job(lost_commit(), open_commit()), True, "one is, the other is open"),
)
def test_a_lost_commit_is_critical(facts: FlinkJobFacts, is_found: bool, why: str) -> None:
    found = findings_of(LOST, flink_jobs=(facts,))
    assert bool(found) is is_found, why
    assert all(each.severity is Severity.CRITICAL for each in found)


def test_a_lost_commit_names_the_checkpoint_and_the_instant() -> None:
    (found,) = findings_of(LOST, flink_jobs=(job(lost_commit(90), lost_commit(60, "copy-2-41")),))
    assert found.summary == "copy has lost records: 2 transactions of chk-41 were aborted"
    assert found.since_ms == ago(90)
    assert found.deadline_ms is None
    assert format_clock(ago(90)) in found.evidence
