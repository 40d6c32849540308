"""Proves that every rule is explained with its limits, which gaps silence it (what a gap hides is in
test_visibility.py), and that its texts do not change while its facts do not."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fenceline.facts import Severity, TransactionState, TransitionKind
from fenceline.limits import Limits
from fenceline.rules import RULES
from fenceline.snapshot import ApplicationFigures, DeletedRead, Repeated
from fenceline.spark.queries import Absence, Stall
from fenceline.spark.records import QueryState
from tests.unit.rules.factories import (
    BLOCKER,
    HANGS,
    NOW_MS,
    OWNED,
    ago,
    blocked_group,
    blocked_offset,
    blocked_partition,
    findings_of,
    gap,
    lso_blocker,
    pending_offset,
    query,
    sink_batch,
    source_position,
    transaction,
    violation,
)
from tests.unit.rules.test_jobs import job, lost_commit, open_commit
from tests.unit.rules.test_transactions import MARKED, commit

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "rules"
COLLECTING = ROOT / "docs" / "collecting.md"
SECTIONS = ["What it means", "Why it matters", "What to do", "Its limits", "When it is silent"]
PACES = {f"{part}_every_s" for part in ("reconcile", "partitions", "groups", "checkpoints", "engines")}
PACES.add("markers_mb")
_ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \|", re.MULTILINE)
#: Words in code that are written like limits, so that one that is no more is noticed anywhere in the text.
_LIKE_A_LIMIT = re.compile(r"`(\w+(?:_s|_percent|_per_hour|_per_day|_factor))\b")


def page(rule: str) -> str:
    return (DOCS / f"{rule}.md").read_text()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_explained_with_its_limits(rule: str) -> None:
    text = page(rule)
    assert text.startswith(f"# {rule}\n"), "its title is its name"
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)
    assert all(part.strip() for part in parts), "a section is empty"
    limits = asdict(Limits())
    named = {name: float(default) for name, default in _ROW.findall(text)}
    assert named == {name: limits.get(name) for name in named}
    assert set(_LIKE_A_LIMIT.findall(text)) <= set(limits)


def test_each_limit_is_explained_by_its_rule_or_by_collecting_and_is_in_the_example() -> None:
    explained = {name for rule in RULES for name, _ in _ROW.findall(page(rule))}
    of_collectors = set(re.findall(r"`(collector_\w+_s|poller_\w+_s)` \([\d.]+\)", COLLECTING.read_text()))
    assert explained | of_collectors == set(asdict(Limits())) - PACES
    example = tomllib.loads((ROOT / "fenceline.example.toml").read_text())
    assert example["limits"] == asdict(Limits())


def test_the_pages_and_their_index_are_those_of_the_rules() -> None:
    assert {path.stem for path in DOCS.glob("*.md")} == {*RULES, "README"}
    assert re.findall(r"^\| \[(\w+)\]\(\1\.md\)", page("README"), re.MULTILINE) == list(RULES)


SOURCES = ("transaction_state", "partitions", "groups", "reconcile", "checkpoints", "audits", "flink")
PLACES = {
    "group:billing": frozenset({"broker:2", "__consumer_offsets-7"}),
    "partition:payments-0": frozenset({"broker:3"}),
    "query:q-1": frozenset({"checkpoint:file:///checkpoints/orders"}),
    "flink_job:job@1": frozenset({"checkpoint:/flink/job"}),
}


class Silence(NamedTuple):
    """Facts of which a rule finds something, and the collectors that it needs for that."""

    facts: Mapping[str, Any]
    needs: frozenset[str]
    #: A collector, a part that hides the finding, and one that does not.
    parts: tuple[tuple[str, str, str], ...] = ()


def of_query(*parts: tuple[str, str, str], needs: str = "checkpoints", **fields: Any) -> Silence:
    facts = {
        "queries": (query(**fields),),
        "partitions": (blocked_partition(lso_blocker(*OWNED, name="payments-7")),),
    }
    return Silence(facts, frozenset(needs.split()), (QUERY_PART, *parts) if needs else parts)


def of_transaction(**facts: Any) -> Silence:
    return Silence(facts, frozenset({"transaction_state"}))


QUERY_PART = ("checkpoints", "query:q-1", "query:q-2")
QUERY_FOLDER = ("checkpoints", "checkpoint:file:///checkpoints/orders", "root:file:///other")
PARTITION_PART = ("partitions", "partition:payments-0", "partition:payments-1")
PARTITION_BROKER = ("partitions", "broker:3", "broker:1")
GROUP_PART = ("groups", "group:billing", "group:audit")
GROUP_PLACES = (
    ("groups", "broker:2", "broker:1"),
    ("groups", "__consumer_offsets-7", "__consumer_offsets-8"),
)
AGAIN = (Repeated("transaction:payments-7", 9, 9, ago(500), ago(5)),)
FIGURES = ApplicationFigures(
    "payments",
    window={TransitionKind.TIMEOUT: 50},
    hour={TransitionKind.REINIT: 50, TransitionKind.INIT: 900},
)
HANGING = (blocked_partition(lso_blocker(*HANGS)),)
FLINK = Silence(
    {"flink_jobs": (job(open_commit(), lost_commit()),)},
    frozenset({"flink", "transaction_state"}),
    (
        ("flink", "flink_job:job@1", "flink_job:job@2"),
        ("flink", "checkpoint:/flink/job", "checkpoint:/flink/other"),
    ),
)
BOTH = "checkpoints partitions"
SILENCES = {
    "open_too_long": of_transaction(transactions=(transaction(900, timeout_s=60),)),
    "coordinator_overdue": of_transaction(transactions=(transaction(900, timeout_s=60),)),
    "stuck_in_prepare": of_transaction(
        transactions=(transaction(900, state=TransactionState.PREPARE_ABORT, decided_s_ago=900),)
    ),
    "aborted_under_commit": of_transaction(aborted_commits=(commit(MARKED),)),
    "fencing_storm": of_transaction(takeovers=AGAIN),
    "timeouts_in_a_row": of_transaction(timeouts=AGAIN),
    "abort_ratio": of_transaction(applications=(FIGURES,)),
    "id_explosion": of_transaction(applications=(FIGURES,)),
    "hanging": Silence(
        {"partitions": HANGING},
        frozenset({"partitions", "transaction_state"}),
        (PARTITION_PART, PARTITION_BROKER),
    ),
    "lso_pinned": Silence(
        {"partitions": HANGING}, frozenset({"partitions"}), (PARTITION_PART, PARTITION_BROKER)
    ),
    "group_stalled": Silence(
        {"groups": (blocked_group(blocked_offset(90)),)},
        frozenset({"groups", "partitions"}),
        (GROUP_PART, *GROUP_PLACES, PARTITION_PART),
    ),
    "offsets_unstable": Silence(
        {"groups": (blocked_group(pending_offset(BLOCKER._replace(pending=True)), log_pinned_s_ago=90),),
         "transactions": (transaction(90),)},
        frozenset({"groups"}),
        (GROUP_PART,),
    ),
    "unread_deleted": Silence(
        {"deleted_reads": (DeletedRead("billing", "payments", 0, 16, ago(60)),)},
        frozenset({"groups", "partitions"}),
        (GROUP_PART, PARTITION_PART),
    ),
    "batch_prepared": of_query(QUERY_FOLDER, sink_batches=(sink_batch(),)),
    "batch_lost": of_query(sink_batches=(sink_batch(open=("b",), aborted=("a",)),)),
    "restart_fails": of_query(restart_severity=Severity.CRITICAL),
    "two_writers": of_query(writers="two folders"),
    "watermark_stalled": of_query(stall=Stall(NOW_MS, 10, ago(90))),
    "batch_slow": of_query(planned=18, finished=17, usual_ms=2_000, planned_ms=ago(90)),
    "data_loss_risk": of_query(
        PARTITION_PART, needs=BOTH, positions=(source_position(811, log_start=812),)
    ),
    "topic_recreated": of_query(PARTITION_PART, needs=BOTH, positions=(source_position(5_813),)),
    "topic_deleted": of_query(
        PARTITION_PART, needs=BOTH, positions=(source_position(812, absence=Absence(ago(60), 0, 900)),)
    ),
    "query_blocked": of_query(PARTITION_PART, needs=BOTH, positions=(source_position(),)),
    "query_failed": of_query(needs="", state=QueryState.FAILED, alive=False),
    "checkpoint_unreadable": of_query(needs="", error="permission denied"),
    "audit_violated": Silence(
        {"audits": (violation(),)},
        frozenset({"audits"}),
        (
            ("audits", "pipeline:orders_enrich", "pipeline:billing"),
            ("audits", "pipeline:orders_enrich", "pipeline:z and 3 more"),
        ),
    ),
    "flink_commit_pending": FLINK,
    "flink_commit_lost": FLINK,
}  # fmt: skip


def test_each_rule_is_among_them() -> None:
    """Those about collectors tell of gaps themselves."""
    assert RULES.keys() - SILENCES.keys() == {"collector_gap", "coordinator_loading"}


@pytest.mark.parametrize("rule", SILENCES)
def test_a_rule_is_silenced_by_gaps_in_what_it_needs_and_by_no_other(rule: str) -> None:
    facts, needs, parts = SILENCES[rule]

    def is_found(source: str, scope: str = "cluster") -> bool:
        return bool(findings_of(rule, **facts, places=PLACES, gaps=(gap(source, scope),)))

    assert {source for source in SOURCES if not is_found(source)} == needs
    for source, hidden, other in parts:
        assert (is_found(source, hidden), is_found(source, other)) == (False, True)
    # Texts with ages in them would be written to the database every second.
    first, later = (findings_of(rule, now_ms=NOW_MS + ms, **facts) for ms in (0, 4_000))
    assert first == later
    assert first
