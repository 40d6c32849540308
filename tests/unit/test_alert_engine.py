"""Proves when an alert is pending, fires, flaps and resolves, tick by tick (a letter: `x` found, `.` missed,
`?` unavailable), as a small evaluator counts them; and how matchers are read, and what they match."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.alerts import engine
from fenceline.alerts.engine import (
    FIRING,
    PENDING,
    RESOLVED,
    Alerting,
    AlertState,
    FindingObservation,
    StateChange,
)
from fenceline.alerts.labels import Matcher, MatcherSet, matchers_text, parse_matchers
from fenceline.findings import REMOVED, RENAMED
from fenceline.rules import RULES
from tests.cases import cases

LIMITS = Alerting(for_ticks=2, resolve_ticks=2, flap_openings=3, flap_s=60)
SHOWN = {PENDING: "p", FIRING: "F", RESOLVED: "r"}
LABELS, NOTES = {"alertname": "coordinator_overdue"}, {"summary": "s"}


@dataclass
class Evaluator:
    """The rows of one finding, as `dashboard.evaluation.evaluate` keeps them."""

    resolve_ticks: int = LIMITS.resolve_ticks
    rows: list[FindingObservation] = field(default_factory=list)

    def tick(self, letter: str, severity: str = "warning", now_ms: int = 0) -> None:
        last = self.rows[-1] if self.rows else None
        if letter == "?":
            if last and last.is_open:
                self.rows[-1] = last._replace(complete=False)
        elif letter == "x" and last and last.is_open:
            self.rows[-1] = last._replace(complete=True, ticks=last.ticks + 1, severity=severity)
        elif letter == "x":
            if last and last.to_miss > 0:
                self.rows[-1] = last._replace(to_miss=-1)
            self.rows.append(
                FindingObservation(len(self.rows) + 1, True, True, 1, 0, severity, now_ms, LABELS, NOTES)
            )
        elif last and last.is_open:
            self.rows[-1] = last._replace(is_open=False, complete=True, to_miss=self.resolve_ticks - 1)
        elif last and last.to_miss > 0:
            self.rows[-1] = last._replace(to_miss=last.to_miss - 1)


@dataclass
class Alert:
    """An alert that polls an evaluator's rows: those that are open, not settled, pending, or new to it."""

    evaluator: Evaluator
    limits: Alerting = LIMITS
    state: AlertState | None = None
    upto: int = 0
    changes: list[StateChange] = field(default_factory=list)

    def poll(self, now_ms: int) -> str:
        pending = self.state.finding if self.state and self.state.state == PENDING else 0
        looks = [
            row
            for row in self.evaluator.rows
            if row.is_open or row.to_miss > 0 or row.number > self.upto or row.number == pending
        ]
        self.upto = len(self.evaluator.rows)
        self.state, changes = engine.advance_alert(self.state, looks, now_ms=now_ms, limits=self.limits)
        self.changes += changes
        return SHOWN[self.state.state] if self.state else "-"


def run_ticks(ticks: str, limits: Alerting = LIMITS) -> tuple[str, Alert]:
    """Let an alert poll after each tick, one a second."""
    alert = Alert(Evaluator(limits.resolve_ticks), limits)
    shown = ""
    for number, letter in enumerate(ticks):
        alert.evaluator.tick(letter, now_ms=number * 1_000)
        shown += alert.poll(number * 1_000)
    return shown, alert


ONCE, NEVER = replace(LIMITS, for_ticks=1, resolve_ticks=1), replace(LIMITS, for_ticks=0, resolve_ticks=0)


@cases(
    (LIMITS, "...", "---", "nothing was ever found"),
    (LIMITS, "xxx", "pFF", "found in two complete ticks: it fires"),
    (LIMITS, "x..", "prr", "one tick is not enough"),
    (LIMITS, "x.x.x", "prprp", "nor is every other"),
    (LIMITS, "x?x", "ppF", "a tick that saw nothing does not count, nor does it break the row"),
    (LIMITS, "x????", "ppppp", "and does not open by itself"),
    (LIMITS, "xx..", "pFFr", "missed in two complete ticks: it is over"),
    (LIMITS, "xx.x", "pFFF", "missed once: it goes on"),
    (LIMITS, "xx.x.x..", "pFFFFFFr", "each time from the beginning"),
    (LIMITS, "xx????", "pFFFFF", "what cannot be seen is not over"),
    (LIMITS, "xx.??.", "pFFFFr", "nor does it count as missed"),
    (LIMITS, "xx.?x..", "pFFFFFr", "found again behind a gap"),
    (LIMITS, "xx..xx", "pFFrpF", "over, and again"),
    (LIMITS, "???xx", "---pF", "a beginning in a gap"),
    (LIMITS, "?", "-", "nothing known, nothing seen"),
    (ONCE, "x.x.", "FrFr", "one tick opens and closes"),
    (NEVER, "x.", "Fr", "no less than one"),
    (replace(LIMITS, for_ticks=4), "xxxx", "pppF", "four ticks open"),
    (replace(LIMITS, resolve_ticks=4), "xx....", "pFFFFr", "four ticks close"),
)
def test_ticks(limits: Alerting, ticks: str, expected: str, why: str) -> None:
    assert run_ticks(ticks, limits)[0] == expected, why


def state_changes(changes: list[StateChange]) -> list[tuple[str, str]]:
    return [(change.old, change.new) for change in changes]


def test_a_pending_alert_that_fired_and_ended_between_two_polls_is_not_missed() -> None:
    judge = Evaluator()
    alert = Alert(judge)
    judge.tick("x")
    assert alert.poll(0) == "p"
    for letter in "xx...":
        judge.tick(letter)
    assert alert.poll(6_000) == "r"
    assert state_changes(alert.changes) == [(PENDING, FIRING), (FIRING, RESOLVED)]


@given(st.text("x.?", min_size=1, max_size=40))
def test_a_tick_without_visibility_and_a_repeated_poll_change_nothing(ticks: str) -> None:
    _, alert = run_ticks(ticks)
    before, count = alert.state, len(alert.changes)
    for letter in "", "?":
        if letter:
            alert.evaluator.tick(letter)
        alert.poll(len(ticks) * 1_000)
        assert (alert.state, len(alert.changes)) == (before, count)


@pytest.mark.parametrize("ticks", ["", "x", "xx.", "xx.."])
def test_a_finding_that_is_unavailable_changes_no_alert(ticks: str) -> None:
    """Found and hidden again before the next poll: the same as not found yet."""
    _, alert = run_ticks(ticks)
    before = alert.state
    for letter in "x?":
        alert.evaluator.tick(letter, "critical")
    alert.poll(9_000)
    assert alert.state == before
    alert.evaluator.tick("x", "critical")
    alert.poll(10_000)
    assert alert.state is not None
    assert alert.state.severity == "critical"


def test_severity_and_texts_are_updated_and_only_a_worse_severity_is_a_change() -> None:
    alert = Alert(Evaluator())
    for number, severity in enumerate(["warning", "warning", "critical", "critical", "info", "warning"]):
        alert.evaluator.tick("x", severity)
        alert.poll(number)
        assert alert.state is not None
        assert alert.state.severity == severity
    told = [(FIRING, "warning"), (FIRING, "critical"), (FIRING, "warning")]
    assert [(change.new, change.state.severity) for change in alert.changes] == told


def test_a_flapping_alert_fires_until_it_is_stable_and_gives_the_reason() -> None:
    shown, alert = run_ticks("xx.." * 3 + "xx" + "." * 70)
    assert shown.startswith("pFFr" * 2 + "pFFFFF" + "F" * 50)
    assert shown.endswith("r")
    # Missed first at second 14, and over a minute later.
    assert shown.index("r", 8) == 14 + 60
    assert state_changes(alert.changes) == [(PENDING, FIRING), (FIRING, RESOLVED)] * 3
    reason = "it opened 3 times within 1 min: it keeps firing until 1 min pass without a finding"
    for ticks, why in (("xx.." * 3, reason), ("xx", "")):
        state = run_ticks(ticks)[1].state
        assert state is not None
        assert engine.why_flapping(state, LIMITS) == why


def test_an_alert_stops_flapping_where_it_stays_found_and_rare_openings_are_none() -> None:
    for after, shown in (("", "F"), ("..", "FFr")):
        letters, alert = run_ticks("xx.." * 3 + "x" * 70 + after)
        assert letters.endswith(shown)
        assert alert.state is not None
        assert alert.state.flapping_ms is None
    assert run_ticks(("xx.." + "." * 40) * 5)[0].count("F") == 10


@given(st.text("x.?", max_size=60), st.data())
def test_nothing_raises_and_changes_alternate(ticks: str, data: st.DataObject) -> None:
    """However rarely it polls: it fires and resolves in turn."""
    alert = Alert(Evaluator())
    for number, letter in enumerate(ticks):
        alert.evaluator.tick(letter)
        if data.draw(st.booleans()):
            alert.poll(number * 1_000)
    kinds = [change.new for change in alert.changes]
    assert kinds == ([FIRING, RESOLVED] * len(kinds))[: len(kinds)]


@given(st.text("x.", max_size=40))
def test_a_single_poll_reports_every_finding_that_lasted_long_enough(ticks: str) -> None:
    """Every row that was found in enough ticks is an opening, or continues one that was not over."""
    limits = replace(LIMITS, flap_openings=1_000)
    _, often = run_ticks(ticks, limits)
    judge = Evaluator()
    for letter in ticks:
        judge.tick(letter)
    once = Alert(judge, limits)
    once.poll(len(ticks) * 1_000)
    assert state_changes(once.changes) == state_changes(often.changes)


def python_pattern(pattern: str) -> Callable[[str], bool]:
    """Patterns by the standard library: the texts of this file are trusted."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(str(error)) from error
    return lambda text: compiled.fullmatch(text) is not None


MATCHED_LABELS = {"team": "Payments", "topic": "orders", "subject": 'say "hi", you'}


@cases(
    ('team="Payments"', [("team", "=", "Payments")]),
    ('team = "a" , topic!="b"', [("team", "=", "a"), ("topic", "!=", "b")]),
    ('{team=~"a|b", topic!~"c.*",}', [("team", "=~", "a|b"), ("topic", "!~", "c.*")]),
    ("team=Payments,topic=orders", [("team", "=", "Payments"), ("topic", "=", "orders")]),
    ('a="1"\nb="2"\r\n\n c="3" ', [("a", "=", "1"), ("b", "=", "2"), ("c", "=", "3")]),
    (r'a="say \"hi\", \\ \n"', [("a", "=", 'say "hi", \\ \n')]),
    (r'a=~"\d+\.x"', [("a", "=~", r"\d+\.x")]),
    ('a=""', [("a", "=", "")]),
    ("  ", []),
    ("{}", []),
    ('a="b,c}"', [("a", "=", "b,c}")]),
)
def test_matchers_are_read(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert parse_matchers(text) == expected


@cases(
    ("team", "“team” cannot be read"),
    ('team=="a"', "cannot be read"),
    ('a="1" b="2"', "and a comma between two"),
    ('a="unfinished', "cannot be read"),
    ('1a="x"', "cannot be read"),
    (f'a="{"a" * 1001}"', "too long"),
    (",".join(['a="1"'] * 21), "at most 20"),
)
def test_unreadable_matchers_are_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_matchers(text)


NAMED = [{"alertname": rule, "subject": "late"} for rule in ("late", "coordinator_overdue")]


@cases(
    ([MATCHED_LABELS], "", True),
    ([MATCHED_LABELS], 'team="Payments"', True),
    ([MATCHED_LABELS], 'team="payments"', False),
    ([MATCHED_LABELS], 'team!="Orders"', True),
    ([MATCHED_LABELS], 'team=~"Pay"', False),
    ([MATCHED_LABELS], 'team=~"Pay.*|Orders"', True),
    ([MATCHED_LABELS], 'team!~"Pay.*"', False),
    ([MATCHED_LABELS], 'nobody=""', True),
    ([MATCHED_LABELS], 'nobody=~".*"', True),
    ([MATCHED_LABELS], 'nobody!="x"', True),
    ([MATCHED_LABELS], 'nobody="x"', False),
    ([MATCHED_LABELS], 'team="Payments",topic="payments"', False),
    ([MATCHED_LABELS], 'topic=~"[a-z]{6}"', True),
    ([MATCHED_LABELS], 'topic=~"[^o].*"', False),
    # A rule is matched by each of its names.
    (NAMED, 'alertname="late"', True),
    (NAMED, 'alertname="coordinator_overdue"', True),
    (NAMED, 'alertname!="late"', False),
    (NAMED, 'alertname=~"late|hanging"', True),
    (NAMED, 'alertname=~"coordinator.*"', True),
    (NAMED, 'alertname!~"la.*"', False),
    (NAMED, 'alertname="gap"', False),
    (NAMED, 'subject="coordinator_overdue"', False),
)
def test_labels_match(all_labels: list[Mapping[str, str]], text: str, expected: bool) -> None:
    for labels in all_labels:
        assert MatcherSet(parse_matchers(text), python_pattern).matches(labels) is expected


@pytest.mark.parametrize("operator", ["=", "!=", "=~"])
def test_a_matcher_of_a_removed_rule_is_refused_with_where_its_facts_are(operator: str) -> None:
    with pytest.raises(ValueError, match=r"The rule progress_dropped was removed: the page of a query"):
        parse_matchers(f'alertname{operator}"progress_dropped"')
    assert parse_matchers('team="progress_dropped"')
    # Renamed rules are or were rules, and no name is used again.
    assert set(RENAMED.values()) <= {*RULES, *REMOVED}
    assert not {*RENAMED, *REMOVED} & set(RULES)


@pytest.mark.parametrize("operator", ["=~", "!~"])
def test_an_unusable_pattern_matches_nothing_and_gives_the_reason(operator: str) -> None:
    made = MatcherSet([("team", "=", "Payments"), ("team", operator, "(")], python_pattern)
    assert not made.matches(MATCHED_LABELS)
    assert "unterminated subpattern" in made.wrong
    assert str(made) == f'team="Payments", team{operator}"("'


@given(st.lists(st.builds(Matcher, st.from_regex(r"[a-z_]{1,5}", fullmatch=True), st.just("="), st.text())))
def test_shown_matchers_are_read_back(matchers: list[Matcher]) -> None:
    shown = matchers_text(matchers[:20])
    assert parse_matchers(shown) == matchers[:20]


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        MatcherSet(parse_matchers(text), python_pattern).matches(MATCHED_LABELS)
