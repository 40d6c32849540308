"""Proves "safe to stop now?" by numbered cases: what speaks against it, what cannot be told."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline.facts import Severity
from fenceline.safe import SafeToStop, Stopping, safe_to_stop, safe_together

NOW_MS = 1_795_000_000_000


def verdict(sink: str = "exactly_once", **facts: Any) -> SafeToStop:
    return safe_to_stop(Stopping("orders", sink, **{"alive": True, **facts}), now_ms=NOW_MS)


FAILS = {"restart": "fails: batch 16 doesn't exist", "severity": Severity.CRITICAL}


@pytest.mark.parametrize(
    ("number", "sink", "facts", "safe", "word"),
    [
        (1, "exactly_once", {}, True, "may be stopped now"),
        (2, "exactly_once", {"under_way": 17, "open_ids": ["a"]}, True, "may be stopped now"),
        (3, "exactly_once", {"prepared": [17], "expires_ms": NOW_MS + 60_000}, False, "lost at"),
        (4, "exactly_once", {"prepared": [17], "expires_ms": NOW_MS - 1}, False, "may be lost since"),
        (5, "exactly_once", {"prepared": [17]}, False, "batch 17 is prepared and not committed"),
        (6, "exactly_once", {"prepared": [16, 17]}, False, "batch 16 and batch 17 are prepared"),
        (7, "exactly_once", FAILS, False, "a restart fails: batch 16"),
        (8, "exactly_once", {**FAILS, "severity": Severity.INFO}, True, "may be stopped"),
        (9, "exactly_once", {"unseen": "no root holds its checkpoint"}, None, "cannot be told"),
        (10, "exactly_once", {"unseen": "blind", "prepared": [17]}, False, "batch 17 is prepared"),
        (11, "exactly_once", {"alive": False}, True, "orders is stopped"),
        (12, "kafka", {}, True, "may be stopped now"),
        (13, "kafka", {"under_way": 17}, False, "may write its rows twice"),
        (14, "other", {"under_way": 17}, False, "may write its rows twice"),
        (15, "other", {"under_way": 17, "alive": False}, True, "is stopped"),
        (16, "", {"under_way": 17}, None, "nothing tells what its sink does"),
        (17, "", {}, True, "may be stopped now"),
        (18, "kafka", {"under_way": 17, "alive": None}, False, "may write its rows twice"),
    ],
)
def test_one_query(number: int, sink: str, facts: dict[str, Any], safe: bool | None, word: str) -> None:
    found = verdict(sink, **facts)
    assert found.safe is safe, f"case {number}: {found}"
    assert word in found.sentence, f"case {number}: {found.sentence}"


def test_reasons_come_worst_first_and_figures_are_carried() -> None:
    found = verdict(
        prepared=[17], expires_ms=NOW_MS + 60_000, open_ids=["a", "b"], under_way=17, unseen="blind", **FAILS
    )
    assert found.safe is False
    assert [reason.split()[0] for reason in found.reasons] == ["batch", "a", "blind"]
    assert (found.prepared, found.expires_ms, found.open_ids) == (1, NOW_MS + 60_000, ("a", "b"))


def test_open_transactions_are_no_reason_against_but_are_told() -> None:
    found = verdict(open_ids=["a"], under_way=17)
    assert found.safe is True
    assert found.reasons[0].startswith("1 transaction of it is open")
    assert found.reasons[1] == "batch 17 is under way: a restart runs it again, exactly once"


@pytest.mark.parametrize(
    ("number", "safe", "wanted", "word"),
    [
        (1, [True, True], True, "All 2 queries of prod may be stopped now."),
        (2, [True], True, "The one query of prod may be stopped now."),
        (3, [True, None], None, "cannot be told: see q1"),
        (4, [None, False], False, "Do not stop the queries of prod now: see q1"),
        (5, [], True, "No query of prod is known."),
    ],
)
def test_a_whole_cluster(number: int, safe: list[bool | None], wanted: bool | None, word: str) -> None:
    found = safe_together("prod", [(f"q{n}", SafeToStop(each, "why")) for n, each in enumerate(safe)])
    assert found.safe is wanted, f"case {number}"
    assert word in found.sentence


def test_a_cluster_adds_up_and_takes_the_first_expiry() -> None:
    first = SafeToStop(False, "no", (), 1, NOW_MS + 9_000, ("a",))
    second = SafeToStop(False, "no", (), 2, NOW_MS + 4_000, ("b", "c"))
    found = safe_together("prod", [("x", first), ("y", second), ("z", SafeToStop(True, "yes"))])
    assert (found.prepared, found.expires_ms, found.open_ids) == (3, NOW_MS + 4_000, ("a", "b", "c"))
    assert found.reasons == ("x: no", "y: no")
