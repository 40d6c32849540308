"""Holds generated histories of transactions against a plain account of them: which episodes there were, how
bad and how large each was, how it ended, and that each instant of the past shows what was shown live then.

A closed incident says how it ended, from the rows that stores keep of its cause.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.incidents import operators
from dashboard.incidents import queries as incident_queries
from dashboard.incidents.endings import outcome_of
from dashboard.incidents.queries import incidents_as_of
from dashboard.incidents.store import GroupingFacts
from dashboard.models import AbortedCommit, Action, Incident, IncidentFinding, PartitionRecord, Recent, Run
from dashboard.runtime.leases import Lease
from dashboard.web.incidents import cards
from fenceline.facts import Finding, Severity, TransitionKind
from fenceline.incidents.impact import ImpactFigures
from fenceline.kafka.transactional_ids import key_of
from fenceline.spark.records import DecisionOutcome
from fenceline.text import plain_text
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import prod
from tests.seeds import SEED

pytestmark = pytest.mark.sql
#: An open incident as the first page shows it: number, title, severity, figures.
Shown = tuple[int, str, str, tuple[tuple[str, int], ...]]
TICKS, IDS = 40, ("a", "b", "c")
REOPENS_MS = 60_000
ORDER = list(reversed(Severity))
#: How a transaction may end, and the words of that.
ENDS = {
    TransitionKind.COMMIT: "Its producer committed it",
    TransitionKind.TIMEOUT: "Its coordinator aborted it at its timeout",
    TransitionKind.CLIENT_ABORT: "Its producer aborted it",
    None: "",
}


@dataclass
class Open:
    """A transaction of the script that is open for too long now."""

    started_ms: int
    severity: Severity
    backlog: int


@dataclass
class Episode:
    """What the account knows of one incident."""

    instance: str
    opened_ms: int
    severity: Severity
    peak: int
    closed_ms: int | None = None
    acknowledged: Severity | None = None
    outcome: str = ""
    #: What was known at each tick: severity, backlog and the largest one until then.
    known: dict[int, tuple[str, int, int]] = field(default_factory=dict)


class Account:
    """The plain account: a new episode for each transaction, unless the same one is back within a minute."""

    def __init__(self) -> None:
        self.episodes: dict[str, list[Episode]] = {name: [] for name in IDS}
        #: What the first page showed at each tick.
        self.shown: dict[int, Sequence[Shown]] = {}

    def tick(self, now: Mapping[str, Open], ended: Mapping[tuple[str, str], str], now_ms: int) -> None:
        for name, episodes in self.episodes.items():
            last = episodes[-1] if episodes else None
            opened = now.get(name)
            if last and last.closed_ms is None and (not opened or last.instance != instance(opened)):
                last.closed_ms, last.outcome = now_ms, ended.get((name, last.instance), "")
            if opened:
                self._open(episodes, opened, now_ms)

    def _open(self, episodes: list[Episode], opened: Open, now_ms: int) -> None:
        last = episodes[-1] if episodes else None
        is_same = last is not None and last.instance == instance(opened)
        if last is None or not is_same or (last.closed_ms and now_ms - last.closed_ms > REOPENS_MS):
            last = Episode(instance(opened), now_ms, opened.severity, opened.backlog)
            episodes.append(last)
        last.closed_ms, last.outcome = None, ""
        last.severity = max(last.severity, opened.severity, key=ORDER.index)
        last.peak = max(last.peak, opened.backlog)
        if last.acknowledged and ORDER.index(last.severity) > ORDER.index(last.acknowledged):
            last.acknowledged = None
        last.known[now_ms] = (last.severity.value, opened.backlog, last.peak)


def instance(opened: Open) -> str:
    return f"7@{opened.started_ms}"


class Script:
    """Transactions of some ids over time: they begin, get worse, flap, follow each other, and end."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.now: dict[str, Open] = {}
        self.gone: dict[str, Open] = {}

    def step(self, now_ms: int) -> Iterator[tuple[str, Open]]:
        """Take one step; yield the transactions that ended in it."""
        for name in IDS:
            roll, opened = self.dice.random(), self.now.get(name)
            if opened and roll < 0.25:
                yield name, self.now.pop(name)
                self.gone[name] = opened
            if (not opened and roll < 0.3) or (opened and 0.2 < roll < 0.25):
                self.now[name] = Open(now_ms - 10_000, self.dice.choice(ORDER), 3 ** self.dice.randrange(6))
            elif not opened and roll < 0.5 and name in self.gone:
                self.now[name] = self.gone[name]
            elif opened and roll < 0.5:
                opened.severity = self.dice.choice(ORDER)
                opened.backlog = 3 ** self.dice.randrange(6)

    def findings(self) -> Iterator[Finding]:
        """Yield what rules find: each transaction, its partition, and a group that waits for all of them."""
        for name, opened in self.now.items():
            subject, where = f"transaction:{name}", f"partition:p-{IDS.index(name)}"
            yield self._finding("open_too_long", subject, opened, where)
            yield self._finding("lso_pinned", where, opened, "group:billing")
        if self.now:
            places = tuple(f"partition:p-{IDS.index(name)}" for name in self.now)
            yield Finding(
                "group_stalled", "prod", "group:billing", Severity.INFO, NOW_MS, "g", "e", "n", places
            )

    def _finding(self, rule: str, subject: str, opened: Open, affected: str) -> Finding:
        words = f"{subject} {opened.severity.value} {opened.backlog}"
        found = instance(opened) if rule == "open_too_long" else ""
        return Finding(
            rule, "prod", subject, opened.severity, opened.started_ms, words, "e", "n", (affected,),
            instance=found,
        )  # fmt: skip


def play(lease: Lease, dice: random.Random) -> Account:
    """Play one history through the evaluator's own save, and return the account of it."""
    script, account, now_ms = Script(dice), Account(), NOW_MS
    for number in range(len(IDS)):
        factories.partition("p", number)
    for _ in range(TICKS):
        now_ms += dice.choice((1_000, 11_000, 40_000, REOPENS_MS + 1_000))
        ended = {}
        for name, opened in script.step(now_ms):
            ended[name, instance(opened)] = _end(name, opened, dice)
        backlog = {f"partition:p-{IDS.index(name)}": each.backlog for name, each in script.now.items()}
        facts = GroupingFacts(figures=ImpactFigures(backlog))
        evaluate_rules.save_findings(
            lease, list(script.findings()), sees=lambda row: True, now_ms=now_ms, facts=facts
        )
        account.tick(script.now, ended, now_ms)
        account.shown[now_ms] = shown_live(now_ms)
        _acknowledge(account, dice, now_ms)
    return account


def shown_live(now_ms: int) -> Sequence[Shown]:
    """Return what the first page shows now of each open incident."""
    rows = incident_queries.open_incidents("prod")
    return sorted(
        (
            line["row"].pk,
            plain_text(line["title"], now_ms=now_ms),
            line["row"].severity,
            tuple(line["figures"]),
        )
        for line in cards.incident_lines(rows)
    )


def shown_later(at_ms: int) -> Sequence[Shown]:
    """Return what the first page of a range that ended then shows of the incidents that were open."""
    rows = incident_queries.incidents_within("prod", at_ms, at_ms + 1, limit=100)
    return sorted(
        (
            line["row"].pk,
            plain_text(line["title"], now_ms=at_ms),
            line["row"].severity,
            tuple(line["figures"]),
        )
        for line in cards.incident_lines(rows, at_ms + 1)
        if line["row"].closed_ms is None
    )


def _end(name: str, opened: Open, dice: random.Random) -> str:
    kind = dice.choice(list(ENDS))
    Recent.objects.filter(key=key_of(name.encode())).delete()
    if kind is not None:
        factories.recent_end(name, kind, producer_id=7, started_ms=opened.started_ms)
    return ENDS[kind]


def _acknowledge(account: Account, dice: random.Random, now_ms: int) -> None:
    open_now = [
        (name, each) for name, some in account.episodes.items() for each in some if each.closed_ms is None
    ]
    if open_now and dice.random() < 0.2:
        name, chosen = dice.choice(open_now)
        row = Incident.objects.get(subject=f"transaction:{name}", closed_ms=None)
        if operators.acknowledge_incident(row.pk, by="ada", now_ms=now_ms):
            chosen.acknowledged = chosen.severity


def check(account: Account) -> None:
    """Hold the stored incidents against the account."""
    for name, episodes in account.episodes.items():
        rows = list(Incident.objects.filter(subject=f"transaction:{name}").order_by("pk"))
        assert [(row.instance, row.opened_ms, row.closed_ms) for row in rows] == [
            (each.instance, each.opened_ms, each.closed_ms) for each in episodes
        ]
        for row, each in zip(rows, episodes, strict=True):
            _check_one(row, each)
    for at_ms, shown in account.shown.items():
        assert shown_later(at_ms) == shown


def _check_one(row: Incident, each: Episode) -> None:
    assert (row.severity, row.peak["backlog"]) == (each.severity.value, each.peak)
    assert row.since_ms == int(row.instance.partition("@")[2])
    assert row.outcome.startswith(each.outcome)
    assert bool(row.outcome) == bool(each.outcome)
    assert bool(row.acknowledged_by) == (each.acknowledged is not None)
    assert all((figure or 0) >= 0 for figure in (*row.peak.values(), *row.impact.values()))
    for at_ms, (severity, backlog, peak) in each.known.items():
        [then] = incidents_as_of([row], at_ms + 1)
        assert (then.severity, then.impact["backlog"], then.closed_ms) == (severity, backlog, None)
        assert then.peak["backlog"] == peak
        assert then.facts["summary"].endswith(f" {backlog}")


@pytest.mark.parametrize("number", range(2))
def test_a_generated_history_is_what_its_account_says(number: int, take: Callable[..., Any]) -> None:
    check(play(take("judge"), random.Random(SEED + number)))


@pytest.mark.soak
@pytest.mark.parametrize("number", range(500))
def test_500_generated_histories(number: int, take: Callable[..., Any]) -> None:
    check(play(take("judge"), random.Random(SEED + 1_000 + number)))


PART = "partition:orders-0"


def closed(rule: str, subject: str, instance: str = "", **columns: Any) -> Incident:
    given = {"opened_ms": NOW_MS, "since_ms": NOW_MS - 5_000, "closed_ms": NOW_MS + 60_000, **columns}
    return Incident.objects.create(
        cluster=prod(), rule=rule, subject=subject, instance=instance, severity="warning", **given
    )


def action(subject: str, **columns: Any) -> Action:
    given = {
        "state": "done",
        "ended_ms": NOW_MS + 50_000,
        "executed_by": "ada",
        "reason": "INC-4411",
        **columns,
    }
    return Action.objects.create(
        cluster=prod(), act="fence", plan={}, digest="d", subjects=subject, planned_by="ada",
        expires_ms=NOW_MS, **given,
    )  # fmt: skip


@cases(
    (TransitionKind.COMMIT, "Its producer committed it at"),
    (TransitionKind.TIMEOUT, "Its coordinator aborted it at its timeout at"),
)
def test_a_transaction_that_ended_by_itself(kind: TransitionKind, words: str) -> None:
    factories.recent_end("payments-7", kind, producer_id=7, started_ms=NOW_MS)
    outcome = outcome_of(closed("open_too_long", "transaction:payments-7", f"7@{NOW_MS}"))
    assert outcome.startswith(words)
    assert outcome_of(closed("open_too_long", "transaction:payments-7", f"7@{NOW_MS - 1}")) == ""


def test_a_commit_that_lost_records_before_says_so() -> None:
    factories.recent_end("payments-7", TransitionKind.COMMIT, producer_id=7, started_ms=NOW_MS)
    row = closed("open_too_long", "transaction:payments-7", f"7@{NOW_MS}")
    assert outcome_of(row).endswith("; nothing was lost.")
    AbortedCommit.objects.create(
        cluster=prod(), key=key_of(b"payments-7"), transactional_id="payments-7", producer_id=7,
        started_ms=NOW_MS, committed_ms=NOW_MS, lost=[["orders", 0, 3, 9, 5, True]],
    )  # fmt: skip
    assert outcome_of(row).endswith("; 5 records had been lost before.")


def test_a_transaction_whose_topics_are_gone() -> None:
    row = closed("open_too_long", "transaction:payments-7", f"7@{NOW_MS}")
    IncidentFinding.objects.create(
        incident=row, finding=1, rule="lso_pinned", subject=PART, role="effect", severity="info",
        summary="s", since_ms=NOW_MS,
    )  # fmt: skip
    factories.partition("orders", 0)
    assert outcome_of(row) == ""
    PartitionRecord.objects.all().delete()
    assert outcome_of(row) == "The topic orders was deleted."


def test_a_partition_was_released_by_an_action_or_its_topic_is_gone() -> None:
    factories.partition("orders", 0)
    PartitionRecord.objects.update(pinned_ms=None)
    row = closed("hanging", PART, "7@40")
    assert outcome_of(row).startswith("The last stable offset moved on at")
    action("partition:orders-01\nmore")
    assert outcome_of(row).startswith("The last stable offset moved on at"), "of another subject"
    done = action(f"{PART}\nmore")
    assert outcome_of(row) == f"Aborted by ada, action {done.pk}, reason INC-4411."
    PartitionRecord.objects.all().delete()
    assert outcome_of(row) == "The topic orders was deleted."


def test_a_batch_that_the_next_run_committed_and_one_that_an_operator_finished() -> None:
    query = factories.query()
    subject = f"query:{query.ident}"
    decision = factories.decision_row(query, factories.decision(3), factories.decision_end(3))
    row = closed("batch_prepared", subject, "batch 3")
    assert outcome_of(row).startswith("Its driver committed all 500 rows at")
    Run.objects.create(query=query, run_id="r-2", first_heard_ms=NOW_MS + 40_000, heard_ms=NOW_MS + 50_000)
    assert outcome_of(row).startswith("The driver came back at ")
    decision.done_by = "operator"
    decision.save()
    done = action(subject)
    assert outcome_of(row).startswith(f"Finished by ada, action {done.pk}, reason INC-4411 at")


def test_a_batch_that_was_lost_says_how_many_rows() -> None:
    query = factories.query()
    lost = factories.sink_transaction(batch=3).transactional_id
    end = factories.decision_end(3, DecisionOutcome.LOST, lost)
    factories.decision_row(query, factories.decision(3, number=2), end)
    outcome = outcome_of(closed("batch_lost", f"query:{query.ident}", "batch 3"))
    assert outcome.startswith("Batch 3 was lost in part: 500 rows of 1,000 aborted")


def test_what_nothing_shows_is_not_claimed() -> None:
    assert outcome_of(closed("group_stalled", "group:billing")) == ""
    assert outcome_of(closed("query_failed", f"query:{factories.query().ident}")) == ""
