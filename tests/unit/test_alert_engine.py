"""Proves when an alert is pending, fires, flaps and is over, tick by tick, also where ticks saw nothing.

A tick is a letter: `x` found, `.` missed, `?` not seen. A judge in a few lines counts as the real one does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.alerts import engine
from fenceline.alerts.engine import FIRING, PENDING, RESOLVED, AlertState, FindingObservation, StateChange
from fenceline.alerts.limits import Alerting

LIMITS = Alerting(for_ticks=2, resolve_ticks=2, flap_openings=3, flap_s=60)
SHOWN = {PENDING: "p", FIRING: "F", RESOLVED: "r"}
LABELS, NOTES = {"alertname": "coordinator_overdue"}, {"summary": "s"}


@dataclass
class Judge:
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
    """An alert that looks at a judge's rows: those that are open, not settled, pending, or new to it."""

    judge: Judge
    limits: Alerting = LIMITS
    state: AlertState | None = None
    upto: int = 0
    changes: list[StateChange] = field(default_factory=list)

    def look(self, now_ms: int) -> str:
        pending = self.state.finding if self.state and self.state.state == PENDING else 0
        looks = [
            row
            for row in self.judge.rows
            if row.is_open or row.to_miss > 0 or row.number > self.upto or row.number == pending
        ]
        self.upto = len(self.judge.rows)
        self.state, changes = engine.advance_alert(self.state, looks, now_ms=now_ms, limits=self.limits)
        self.changes += changes
        return SHOWN[self.state.state] if self.state else "-"


def played(ticks: str, limits: Alerting = LIMITS) -> tuple[str, Alert]:
    """Let an alert look at each tick, one a second."""
    alert = Alert(Judge(limits.resolve_ticks), limits)
    shown = ""
    for number, letter in enumerate(ticks):
        alert.judge.tick(letter, now_ms=number * 1_000)
        shown += alert.look(number * 1_000)
    return shown, alert


@pytest.mark.parametrize(
    ("number", "ticks", "expected", "why"),
    [
        (1, "...", "---", "nothing was ever found"),
        (2, "xxx", "pFF", "found in two complete ticks: it fires"),
        (3, "x..", "prr", "one tick is not enough"),
        (4, "x.x.x", "prprp", "nor is every other"),
        (5, "x?x", "ppF", "a tick that saw nothing does not count, nor does it break the row"),
        (6, "x????", "ppppp", "and does not open by itself"),
        (7, "xx..", "pFFr", "missed in two complete ticks: it is over"),
        (8, "xx.x", "pFFF", "missed once: it goes on"),
        (9, "xx.x.x..", "pFFFFFFr", "each time from the beginning"),
        (10, "xx????", "pFFFFF", "what cannot be seen is not over"),
        (11, "xx.??.", "pFFFFr", "nor does it count as missed"),
        (12, "xx.?x..", "pFFFFFr", "found again behind a gap"),
        (13, "xx..xx", "pFFrpF", "over, and again"),
        (14, "???xx", "---pF", "a beginning in a gap"),
        (15, "?", "-", "nothing known, nothing seen"),
    ],
)
def test_ticks(number: int, ticks: str, expected: str, why: str) -> None:
    assert played(ticks)[0] == expected, f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "limits", "ticks", "expected"),
    [
        (1, replace(LIMITS, for_ticks=1, resolve_ticks=1), "x.x.", "FrFr"),
        (2, replace(LIMITS, for_ticks=0, resolve_ticks=0), "x.", "Fr"),
        (3, replace(LIMITS, for_ticks=4), "xxxx", "pppF"),
        (4, replace(LIMITS, resolve_ticks=4), "xx....", "pFFFFr"),
    ],
)
def test_ticks_are_configured(number: int, limits: Alerting, ticks: str, expected: str) -> None:
    assert played(ticks, limits)[0] == expected, f"case {number}"


def told(changes: list[StateChange]) -> list[tuple[str, str]]:
    return [(change.old, change.new) for change in changes]


def test_what_opened_and_closed_between_two_looks_is_not_missed() -> None:
    judge = Judge()
    alert = Alert(judge)
    for letter in "xxx....":
        judge.tick(letter)
    assert alert.look(7_000) == "r"
    assert told(alert.changes) == [(PENDING, FIRING), (FIRING, RESOLVED)]


def test_a_pending_alert_that_held_and_ended_between_two_looks_is_not_missed() -> None:
    judge = Judge()
    alert = Alert(judge)
    judge.tick("x")
    assert alert.look(0) == "p"
    for letter in "xx...":
        judge.tick(letter)
    assert alert.look(6_000) == "r"
    assert told(alert.changes) == [(PENDING, FIRING), (FIRING, RESOLVED)]


def test_looking_twice_changes_nothing() -> None:
    _, alert = played("xx.xx..xx.")
    before, count = alert.state, len(alert.changes)
    for _ in range(3):
        alert.look(9_000)
    assert (alert.state, len(alert.changes)) == (before, count)


@pytest.mark.parametrize("ticks", ["", "x", "xx.", "xx.."])
def test_nothing_follows_a_finding_while_it_cannot_be_seen(ticks: str) -> None:
    """Found anew and hidden again before anybody looked: as if it had not been found yet."""
    _, alert = played(ticks)
    before = alert.state
    for letter in "x?":
        alert.judge.tick(letter, "critical")
    alert.look(9_000)
    assert alert.state == before
    alert.judge.tick("x", "critical")
    alert.look(10_000)
    assert alert.state is not None
    assert alert.state.severity == "critical"


def test_severity_and_words_follow_and_only_what_is_worse_is_a_change() -> None:
    alert = Alert(Judge())
    for number, severity in enumerate(["warning", "warning", "critical", "critical", "info", "warning"]):
        alert.judge.tick("x", severity)
        alert.look(number)
        assert alert.state is not None
        assert alert.state.severity == severity
    assert [(change.new, change.state.severity) for change in alert.changes] == [
        (FIRING, "warning"),
        (FIRING, "critical"),
        (FIRING, "warning"),
    ]


def test_what_flaps_goes_on_firing_until_it_was_quiet() -> None:
    shown, alert = played("xx.." * 3 + "xx" + "." * 70)
    assert shown.startswith("pFFr" * 2 + "pFFFFF" + "F" * 50)
    assert shown.endswith("r")
    # Missed first at second 14, and over a minute later.
    assert shown.index("r", 8) == 14 + 60
    assert told(alert.changes) == [(PENDING, FIRING), (FIRING, RESOLVED)] * 3


def test_the_reason_says_that_it_flaps() -> None:
    _, alert = played("xx.." * 3)
    assert alert.state is not None
    assert engine.why_flapping(alert.state, LIMITS) == (
        "it opened 3 times within 1 min: it goes on firing until nothing was found for as long"
    )
    assert engine.why_flapping(played("xx")[1].state or alert.state, LIMITS) == ""


def test_what_flaps_and_then_stands_does_not_flap_any_more() -> None:
    _, alert = played("xx.." * 3 + "x" * 70)
    assert alert.state is not None
    assert (alert.state.state, alert.state.flapping_ms) == (FIRING, None)
    shown, _ = played("xx.." * 3 + "x" * 70 + "..")
    assert shown.endswith("FFr")


def test_seldom_openings_are_no_flapping() -> None:
    shown, _ = played(("xx.." + "." * 40) * 5)
    assert shown.count("F") == 10


@given(st.text("x.?", max_size=60), st.data())
def test_nothing_raises_and_changes_alternate(ticks: str, data: st.DataObject) -> None:
    """However seldom it looks: it fires, then it is over, in turn."""
    alert = Alert(Judge())
    for number, letter in enumerate(ticks):
        alert.judge.tick(letter)
        if data.draw(st.booleans()):
            alert.look(number * 1_000)
    kinds = [change.new for change in alert.changes]
    assert kinds == ([FIRING, RESOLVED] * len(kinds))[: len(kinds)]


@given(st.text("x.?", min_size=1, max_size=40))
def test_a_tick_that_saw_nothing_changes_nothing(ticks: str) -> None:
    _, alert = played(ticks)
    before, count = alert.state, len(alert.changes)
    alert.judge.tick("?")
    alert.look(len(ticks) * 1_000)
    assert (alert.state, len(alert.changes)) == (before, count)


@given(st.text("x.", max_size=40))
def test_who_looks_once_is_told_of_all_that_held(ticks: str) -> None:
    """Every row that was found in enough ticks is an opening, or goes on one that was not over."""
    limits = replace(LIMITS, flap_openings=1_000)
    _, often = played(ticks, limits)
    judge = Judge()
    for letter in ticks:
        judge.tick(letter)
    once = Alert(judge, limits)
    once.look(len(ticks) * 1_000)
    assert told(once.changes) == told(often.changes)
