"""Proves the severity of a finding, as a table: a function of the damage so far and of the time that is
left.
"""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import Severity
from fenceline.findings.severity import Impact, before_loss, lasting_severity, of_block, worst_severity
from fenceline.limits import Limits

NOW = 1_795_000_000_000
LIMITS = Limits()
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
ORDER = (INFO, WARNING, CRITICAL)


class Case(NamedTuple):
    """A block that began so many seconds ago, and how bad it is."""

    title: str
    severity: Severity
    since_s: float = 90
    readers: int = 1
    #: For how many seconds the first reader has been blocked.
    blocked_s: float | None = 90
    records: int = 50
    #: In how many seconds after its beginning a coordinator ends it; None where nothing does.
    ends_s: float | None = 600
    is_usual: bool = False


CASES = (
    # 1-4: nobody is known to be blocked.
    Case("nobody reads it", INFO, readers=0, blocked_s=None),
    Case("nobody reads it, and nothing ends it", INFO, readers=0, blocked_s=None, ends_s=None),
    Case("nobody is known to read it for 5 minutes", INFO, 300, 0, None),
    Case("and longer: not every reader commits to a group", WARNING, 300.1, 0, None),
    # 5-7: a reader, for how long.
    Case("a group came to the LSO a minute ago", INFO, 90, 1, 60),
    Case("a moment longer", WARNING, 90, 1, 60.1),
    Case("five minutes", WARNING, 300, 1, 300),
    Case("longer", CRITICAL, 301, 1, 300.1),
    # This was once "info".
    Case("1,465 records, a group stopped for 7 minutes", CRITICAL, 430, 1, 420, 1_465),
    # 10-14: a heavy block is critical as soon as it is more than a note.
    Case("9,999 records", WARNING, records=9_999),
    Case("10,000 records", CRITICAL, records=10_000),
    Case("10,000 records, for half a minute", INFO, blocked_s=30, records=10_000),
    Case("ten groups and queries", CRITICAL, readers=10),
    Case("nine", WARNING, readers=9),
    # 15-17: the time that is left.
    Case("nothing will ever end it", CRITICAL, ends_s=None),
    Case("its timeout is an hour", CRITICAL, ends_s=3_600),
    Case("its timeout is a quarter of an hour", WARNING, ends_s=900),
    # 18: usual work.
    Case("its application's transactions take so long", INFO, 430, 3, 420, 20_000, is_usual=True),
)


def impact(case: Case, readers: int | None = None) -> Impact:
    since_ms = NOW - int(case.since_s * 1_000)
    return Impact(
        since_ms=since_ms,
        readers=case.readers,
        blocked_ms=None if case.blocked_s is None else NOW - int(case.blocked_s * 1_000),
        records=case.records,
        ends_ms=None if case.ends_s is None else since_ms + int(case.ends_s * 1_000),
        is_usual=case.is_usual,
    )


@pytest.mark.parametrize("case", CASES, ids=[f"{n}: {case.title}" for n, case in enumerate(CASES, 1)])
def test_a_blocker_has_the_severity_of_its_impact(case: Case) -> None:
    assert of_block(impact(case), now_ms=NOW, limits=LIMITS) is case.severity


@given(
    since_s=st.integers(0, 4_000),
    readers=st.integers(0, 20),
    records=st.integers(0, 30_000),
    ends_s=st.none() | st.integers(1, 4_000),
    more_s=st.integers(0, 4_000),
    more_records=st.integers(0, 30_000),
)
def test_severity_never_falls_while_a_block_lasts(
    since_s: int, readers: int, records: int, ends_s: int | None, more_s: int, more_records: int
) -> None:
    """An alert that resolves and fires again as the end comes nearer would be of no use."""
    case = Case("", INFO, since_s, readers, since_s if readers else None, records, ends_s)
    first = of_block(impact(case), now_ms=NOW, limits=LIMITS)
    grown = impact(case)._replace(records=records + more_records)
    later = of_block(grown, now_ms=NOW + 1_000 * more_s, limits=LIMITS)
    assert ORDER.index(later) >= ORDER.index(first)


@pytest.mark.parametrize(
    ("left_s", "severity"), [(None, CRITICAL), (-5, CRITICAL), (0, CRITICAL), (600, CRITICAL), (601, WARNING)]
)
def test_severity_of_a_loss_grows_as_it_approaches(left_s: int | None, severity: Severity) -> None:
    loss_ms = None if left_s is None else NOW + left_s * 1_000
    assert before_loss(loss_ms, now_ms=NOW, limits=LIMITS) is severity


@pytest.mark.parametrize(("lasts_s", "severity"), [(0, WARNING), (300, WARNING), (300.5, CRITICAL)])
def test_an_outage_of_a_whole_kind_is_more_severe_once_it_lasts(lasts_s: float, severity: Severity) -> None:
    assert lasting_severity(NOW - int(lasts_s * 1_000), now_ms=NOW, limits=LIMITS) is severity


def test_the_worst_severity_is_chosen() -> None:
    assert worst_severity([INFO, CRITICAL, WARNING]) is CRITICAL
    assert worst_severity([]) is INFO
