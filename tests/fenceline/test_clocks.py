"""Proves that ages are by our own clock, whatever clock stamped a record."""

from __future__ import annotations

import pytest

from fenceline.clocks import ours_ms, start_ms

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("number", "stamped", "ahead", "since", "age", "why"),
    [
        (1, -60_000, 0, -HOUR_MS, 60_000, "clocks agree"),
        (2, -60_000 + HOUR_MS, -HOUR_MS, -HOUR_MS, 60_000, "its coordinator is an hour ahead"),
        (3, -60_000 - HOUR_MS, HOUR_MS, -HOUR_MS, 60_000, "its coordinator is an hour behind"),
        (4, -60_000, None, -HOUR_MS, 60_000, "its clock is not known: its stamp is all there is"),
        (5, -60_000 - HOUR_MS, None, -30_000, 30_000, "not known, and it was there when we came"),
        (6, -60_000 + HOUR_MS, None, -30_000, None, "a start in the future is no age"),
        (7, -100, 250, -HOUR_MS, 0, "what is measured is a little too large: never a start in the future"),
        (8, -60_000, None, None, 60_000, "from a coordinator's list: no position to hold it against"),
        (9, None, 0, -HOUR_MS, None, "a record without a start"),
    ],
)
def test_start(
    number: int, stamped: int | None, ahead: int | None, since: int | None, age: int | None, why: str
) -> None:
    began = start_ms(
        None if stamped is None else NOW_MS + stamped,
        now_ms=NOW_MS,
        ahead_ms=ahead,
        since_ms=None if since is None else NOW_MS + since,
    )
    assert (None if began is None else NOW_MS - began) == age, f"case {number}: {why}"


def test_an_instant_is_moved_and_never_lies_in_the_future() -> None:
    assert ours_ms(NOW_MS - HOUR_MS, now_ms=NOW_MS, ahead_ms=HOUR_MS - 5) == NOW_MS - 5
    assert ours_ms(NOW_MS + 5, now_ms=NOW_MS, ahead_ms=None) == NOW_MS
