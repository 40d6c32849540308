"""Proves when a group is notified, of what and why: Alertmanager's reasons, waits, mutes, ends, outcomes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fenceline.alerts import grouping, notification_decision
from fenceline.alerts.engine import Alerting
from fenceline.alerts.grouping import Item, LastNotification, Outlook, Route
from fenceline.alerts.labels import MatcherSet
from fenceline.alerts.notification_decision import Muting
from fenceline.alerts.payload import MOST_ALERTS, SendReason
from fenceline.incidents.findings import FindingKey, IncidentCause
from tests.cases import cases

NOW = 1_795_000_000_000
S = 1_000
URL = "https://fenceline.example"


def no_pattern(pattern: str) -> Callable[[str], bool]:
    raise ValueError(f"{pattern} is refused")


def matchers(*each: tuple[str, str, str]) -> MatcherSet:
    return MatcherSet(each, no_pattern)


def route(kind: str = "webhook", **changes: Any) -> Route:
    made = grouping.channel_route(
        number=1, name="pager", kind=kind, min_severity="warning", matchers=[], group_by=[],
        waits_s=(None, None, None), send_resolved=True, off="",
        limits=Alerting(
            group_wait_s=30, group_interval_s=300, repeat_interval_s=3_600, group_by=("cluster", "alertname")
        ),
        compile_pattern=no_pattern,
    )  # fmt: skip
    return replace(made, **changes)


def item(
    name: str,
    *,
    rule: str = "coordinator_overdue",
    severity: str = "warning",
    ago_s: float = 60,
    **changes: Any,
) -> Item:
    """An alert that fires since `ago_s`."""
    fired_ms = NOW - int(ago_s * S)
    labels = {"alertname": rule, "cluster": "prod", "severity": severity, "subject": name}
    made = Item(
        name, 1, rule, name, severity, labels, {}, (), firing=True, fired_ms=fired_ms, loud_ms=fired_ms
    )
    return replace(made, **changes)


def ended_item(name: str, ago_s: float, **changes: Any) -> Item:
    return item(name, ago_s=900, firing=False, resolved_ms=NOW - int(ago_s * S), **changes)


KEY = grouping.group_key("prod", {"alertname": "coordinator_overdue", "cluster": "prod"})


def last_sent(ago_s: float, *names: str, through: bool = True) -> LastNotification:
    """The group's newest message, made `ago_s` ago, holding these."""
    return LastNotification(17, KEY, NOW - int(ago_s * S), dict.fromkeys(names, "warning"), through)


def decide_groups(
    items: Iterable[Item],
    held: Iterable[LastNotification] = (),
    *,
    to: Route | None = None,
    muted: Iterable[str] = (),
) -> Outlook:
    hushed = set(muted)
    found: Mapping[str, Item] = {each.fingerprint: each for each in items}
    return grouping.decide_notifications(
        to or route(), found, held, lambda each: each.fingerprint in hushed, cluster="prod", now_ms=NOW
    )


def pending_summary(found: Outlook) -> list[tuple[str, list[str], list[str]]]:
    """What is sent: why, what fires, what is over."""
    return [
        (each.reason, [one.fingerprint for one in each.firing], [one.fingerprint for one, _ in each.over])
        for each in found.sendings
    ]


def test_an_alert_that_moved_to_another_group_resolves_in_the_former_one() -> None:
    renamed = item("a", rule="hanging", ago_s=900)
    found = decide_groups([renamed], [last_sent(600, "a")])
    assert pending_summary(found) == [(ALL, [], ["a"]), (FIRST, ["a"], [])]
    assert [each.key == KEY for each in found.sendings] == [True, False]
    early = pending_summary(decide_groups([renamed], [last_sent(20, "a")]))
    assert early[0][0] == FIRST, "the interval holds"


FIRST, NEW, RESOLVED = SendReason.FIRST, SendReason.NEW_ALERTS, SendReason.NEW_RESOLVED
ALL, REPEAT = SendReason.ALL_RESOLVED, SendReason.REPEAT
OLD = item("old", ago_s=9_000)


@cases(
    ([item("a", ago_s=29)], [], [], "the first message waits for more"),
    ([item("a", ago_s=30)], [], [(FIRST, ["a"], [])], "and is sent after group_wait"),
    ([item("a", ago_s=30), item("b", ago_s=1)], [], [(FIRST, ["a", "b"], [])], "with what came"),
    ([ended_item("a", 60)], [], [], "resolved before anybody was told: nothing"),
    ([OLD, item("b")], [last_sent(299, "old")], [], "the next one waits for group_interval"),
    ([OLD, item("b")], [last_sent(300, "old")], [(NEW, ["b", "old"], [])], "and says all that fires"),
    ([OLD, item("b", ago_s=29)], [last_sent(900, "old")], [], "what is new waits for more as well"),
    ([OLD, ended_item("b", 60)], [last_sent(900, "old", "b")], [(RESOLVED, ["old"], ["b"])], "one is over"),
    ([ended_item("old", 60)], [last_sent(900, "old")], [(ALL, [], ["old"])], "all are over"),
    ([ended_item("old", 60)], [last_sent(200, "old")], [], "not before group_interval"),
    ([ended_item("a", 60), item("b")], [last_sent(900, "a")], [(NEW, ["b"], ["a"])], "new is worth more"),
    ([OLD], [last_sent(3_599, "old")], [], "told, and nothing is new"),
    ([OLD], [last_sent(3_600, "old")], [(REPEAT, ["old"], [])], "told again after repeat_interval"),
    ([OLD], [last_sent(9_000, "old", through=False)], [], "not while the one before is under way"),
    ([ended_item("old", 60)], [last_sent(9_000, "old", through=False)], [], "the end neither"),
    ([item("a", severity="info")], [], [], "below the channel's severity"),
    ([replace(OLD, severity="critical")], [last_sent(900, "old")], [(NEW, ["old"], [])], "worse"),
    ([replace(OLD, severity="info")], [last_sent(9_000, "old")], [], "told, and unwanted by now"),
    ([], [last_sent(900, "gone")], [], "nothing is known of it any more"),
    ([item("a"), item("b", rule="x")], [], [(FIRST, ["a"], []), (FIRST, ["b"], [])], "two groups"),
    ([item("a")], [last_sent(5)], [(FIRST, ["a"], [])], "after an end it begins anew"),
    ([item("a", loud_ms=NOW)], [], [], "it was muted until now: it waits from now on"),
)  # fmt: skip
def test_a_group_is_notified_after_its_waits(
    items: list[Item], held: list[LastNotification], expected: list[Any], why: str
) -> None:
    assert pending_summary(decide_groups(items, held)) == expected, why


@cases(
    ([item("a")], [], "a", [], "nobody is told of what is muted"),
    ([item("a"), item("b")], [], "a", [(FIRST, ["b"], [])], "of others they are"),
    ([OLD], [last_sent(9_000, "old")], ["old"], [], "nor told again"),
    ([ended_item("old", 60)], [last_sent(900, "old")], ["old"], [(ALL, [], ["old"])], "its end is told"),
    ([OLD, ended_item("b", 60)], [last_sent(900, "old", "b")], ["old"], [(RESOLVED, [], ["b"])], "held yet"),
)
def test_muted_alerts_are_left_out_of_messages_and_stay_in_the_group(
    items: list[Item], held: list[LastNotification], muted: list[str], expected: list[Any], why: str
) -> None:
    assert pending_summary(decide_groups(items, held, muted=muted)) == expected, why
    (sending,) = decide_groups([OLD, item("b")], [last_sent(900, "old")], muted=["old"]).sendings
    assert (list(sending.held), sending.new) == (["old", "b"], 1)


def test_a_channel_without_resolved_notifications_receives_none_and_a_disabled_one_nothing() -> None:
    deaf = route(send_resolved=False)
    known = decide_groups([OLD, ended_item("b", 60)], [last_sent(900, "old", "b")], to=deaf)
    assert pending_summary(known) == []
    found = decide_groups([ended_item("old", 60)], [last_sent(900, "old")], to=deaf)
    assert (pending_summary(found), [each.number for each in found.cleared]) == ([], [17])
    assert pending_summary(decide_groups([item("a")], to=route(off="it is disabled"))) == []


def test_a_group_clears_delivered_ends_and_gives_the_next_notification_time_of_its_alerts() -> None:
    assert [each.number for each in decide_groups([], [last_sent(1)]).cleared] == [17]
    assert decide_groups([], [last_sent(1, through=False)]).cleared == []
    assert decide_groups([item("a", ago_s=10)]).waits == {"a": NOW + 20 * S}
    assert decide_groups([OLD, item("b")], [last_sent(100, "old")]).waits == {"b": NOW + 200 * S}
    assert decide_groups([OLD, item("b")], [last_sent(1, "old", through=False)]).waits == {"b": None}


def test_an_alertmanager_is_notified_at_once_and_repeatedly_and_by_severity() -> None:
    to = route("alertmanager")
    made = grouping.channel_route(
        number=1, name="am", kind="alertmanager", min_severity="info", matchers=[], group_by=[],
        waits_s=(None, None, None), send_resolved=True, off="", limits=Alerting(),
        compile_pattern=no_pattern,
    )  # fmt: skip
    assert (made.wait_ms, made.interval_ms, made.repeat_ms, made.lives_ms) == (0, 5 * S, 120 * S, 360 * S)
    assert (to.kind, made.group_by) == ("alertmanager", ("severity", "incident"))
    key = grouping.group_key("prod", {"severity": "warning"})
    was = LastNotification(17, key, NOW - 10 * S, {"a": "warning"}, True)
    found = decide_groups([item("a", severity="critical")], [was], to=made)
    assert sorted(pending_summary(found)) == [(ALL, [], ["a"]), (FIRST, ["a"], [])]
    (ended,) = [each for each in found.sendings if each.over]
    said = grouping.group_message(ended, external_url=URL, now_ms=NOW).notices
    assert [(each.labels["severity"], each.ends_ms) for each in said] == [("warning", NOW)]


def test_a_large_group_lists_the_new_alerts_and_many_messages_wait_for_the_next_tick() -> None:
    many = [item(f"n{n}") for n in range(MOST_ALERTS - 1)]
    items = [OLD, *many, ended_item("b", 60), ended_item("c", 60)]
    found = decide_groups(items, [last_sent(900, "old", "b", "c")])
    said = grouping.group_message(found.sendings[0], external_url=URL, now_ms=NOW)
    assert (len(said.notices), said.truncated) == (MOST_ALERTS, 2)
    assert said.notices[-1].fingerprint == "b"
    found = decide_groups([item(f"n{n}", rule=f"r{n}") for n in range(5)])
    found.defer_excess(3, NOW)
    assert (len(found.sendings), sorted(found.waits)) == (3, ["n3", "n4"])


def test_group_keys_have_a_bounded_length_and_stay_distinct() -> None:
    first, second = (grouping.group_key("prod", {"subject": "s" * 2_000 + end}) for end in "ab")
    assert len(first) == len(second) == 500
    assert first != second
    assert grouping.group_key("prod", {"team": ""}) == '{cluster="prod"}:{}'


class Silence:
    pk, ends_ms, reason, created_by = 12, NOW + 3_600 * S, "deploy", "ada"

    def __init__(self, *matchers: tuple[str, str, str]) -> None:
        self.matchers = matchers


CAUSE = item("transaction:p", severity="critical", affected=["group:g"], number=7)
CAUSE_OF_12 = IncidentCause(12, FindingKey("coordinator_overdue", "transaction:p"))
FOLLOWS = item("group:g", rule="group_stalled", causes=[CAUSE_OF_12])


SILENCE = Silence(("alertname", "=", "coordinator_overdue"))


def test_a_silence_gives_its_author_and_its_end() -> None:
    muting = Muting([CAUSE, FOLLOWS], [SILENCE], no_pattern)
    told = ["silenced", "12", "by ada until 2026-11-18 12:06 UTC: deploy"]
    assert (muting.matching_silences(CAUSE), muting.matching_silences(FOLLOWS)) == ([told], [])


def test_an_effect_is_inhibited_only_where_the_cause_is_notified() -> None:
    muting = Muting([CAUSE, FOLLOWS], [], no_pattern)
    words = "by the alert of transaction p: covered by incident 12"
    assert muting.inhibition_reason(FOLLOWS, route()) == ["inhibited", "#7", words]
    stalled = route(number=2, matchers=matchers(("alertname", "=", "group_stalled")))
    assert muting.inhibition_reason(FOLLOWS, stalled) is None
    assert muting.inhibition_reason(CAUSE, route()) is None
    for notified in [replace(CAUSE, severity="info"), FOLLOWS], [FOLLOWS]:
        assert Muting(notified, [], no_pattern).inhibition_reason(FOLLOWS, route()) is None
    # Silenced or not: who silences the cause wants to hear of neither.
    assert Muting([CAUSE, FOLLOWS], [SILENCE], no_pattern).is_muted(FOLLOWS, route())


def channel_view(
    items: Iterable[Item], held: Iterable[LastNotification] = (), to: Route | None = None
) -> notification_decision.View:
    of, before = to or route(), list(held)
    found = decide_groups(items, before, to=of)
    return notification_decision.channel_view(found, of, before, range(100, 100 + len(found.sendings)), NOW)


def notification_outcome(new: str, now: Item, known: notification_decision.View) -> Any:
    happened = notification_decision.Happened(new, now.fingerprint, now.severity, now.labels, now, "")
    found = notification_decision.notification_outcome(happened, known)
    return found and found[1:]


YOUNG = item("a", ago_s=1)
A, OVER, INFO = item("a"), ended_item("a", 60), item("a", severity="info")


@cases(
    ("firing", A, channel_view([A]), ["delivery", 100]),
    ("firing", YOUNG, channel_view([YOUNG]), None),
    ("firing", A, channel_view([A], [last_sent(9, "a")]),
     ["quiet", "it was notified already, with delivery 17"]),
    ("firing", OVER, channel_view([OVER]), ["quiet", "it was over before anybody there was notified"]),
    ("firing", INFO, channel_view([INFO]), ["quiet", "it wants warning and worse, and this is info"]),
    ("firing", A, channel_view([A], to=route(off="it is disabled")), ["quiet", "it is disabled"]),
    ("resolved", OVER, channel_view([OVER], [last_sent(900, "a")]), ["delivery", 100]),
    ("resolved", OVER, channel_view([OVER], [last_sent(9, "a")]), None),
    ("resolved", OVER, channel_view([OVER]), ["quiet", "its firing was not notified there"]),
    ("resolved", A, channel_view([A], [last_sent(900, "a")]),
     ["quiet", "it fired again before its end was notified"]),
    ("resolved", OVER, channel_view([OVER], [last_sent(900, "a")], route(send_resolved=False)),
     ["quiet", "the channel does not get resolved notifications"]),
    ("resolved", OVER, channel_view([OVER], [last_sent(900, "a")], route(off="it is disabled")),
     ["quiet", "it is disabled"]),
)  # fmt: skip
def test_each_change_has_its_notification_outcome(
    new: str, now: Item, known: notification_decision.View, expected: Any
) -> None:
    assert notification_outcome(new, now, known) == expected


def test_a_change_has_one_outcome_per_channel() -> None:
    outcomes = notification_decision.notification_outcomes
    second = replace(channel_view([A]), route=route(number=2))
    happened = notification_decision.Happened("firing", "a", "warning", A.labels, A, "")
    told = [[2, "delivery", 100]]
    assert outcomes(happened, [channel_view([YOUNG]), second], []) == (told, True)
    assert outcomes(happened, [channel_view([A]), second], told) == ([[1, "delivery", 100]], False)
    assert outcomes(happened, [], []) == ([], False)


def suppression_reasons(
    now: Item, *views: notification_decision.View, inhibited: Mapping[int, list[str]] | None = None
) -> Any:
    return notification_decision.suppression_reasons(now, [], views, inhibited or {}, None)


def test_reasons_are_given_for_suppressed_notifications() -> None:
    assert suppression_reasons(A, channel_view([A])) == []
    assert suppression_reasons(YOUNG, channel_view([YOUNG])) == [
        ["grouped", "pager", "is notified at 11:07:09 UTC, with what else comes to its group"]
    ]
    assert suppression_reasons(INFO, channel_view([INFO]))[0][:2] == ["below_severity", "pager"]
    assert suppression_reasons(A, channel_view([A], to=route(off="off")))[0] == ["disabled", "pager", "off"]
    assert suppression_reasons(A)[0][0] == "no_channel"
    picky = route(matchers=matchers(("team", "=", "x")))
    assert suppression_reasons(A, channel_view([A], to=picky)) == [["no_match", "pager", 'wants team="x"']]
    refused = route(matchers=matchers(("team", "=~", "(")))
    words = "has a matcher that cannot be used: ( is refused"
    assert suppression_reasons(A, channel_view([A], to=refused)) == [["no_match", "pager", words]]
    why = ["inhibited", "#7", "by coordinator_overdue of x"]
    assert suppression_reasons(A, channel_view([A], [last_sent(9, "a")]), inhibited={1: why}) == [why]
    # One who is told is enough.
    assert suppression_reasons(A, channel_view([A]), channel_view([A], to=picky)) == []
