"""Proves how figures are worded."""

import pytest

from dashboard.web.pages.system import setting_labels
from fenceline.formatting import count_noun, error_line, format_clock, format_duration, shorten


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (-5, "0 ms"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (2_149, "2.1 s"),
        (9_999, "10 s"),
        (10_000, "10 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (842_000, "14 min 2 s"),
        (3_600_000, "1 h"),
        (11_100_000, "3 h 5 min"),
        (187_200_000, "2 d 4 h"),
        (2_147_483_647, "24 d 20 h"),
    ],
)
def test_duration(ms: int, words: str) -> None:
    assert format_duration(ms) == words


def test_count_groups_digits_and_uses_singular_and_plural() -> None:
    assert [count_noun(n, "record") for n in (0, 1, 1_204)] == ["0 records", "1 record", "1,204 records"]
    assert [count_noun(n, "batch") for n in (1, 2)] == ["1 batch", "2 batches"]
    assert [count_noun(n, "query") for n in (1, 2)] == ["1 query", "2 queries"]


def test_clock_is_utc() -> None:
    assert format_clock(1_700_000_000_123) == "22:13:20 UTC"


def test_an_error_is_one_line_of_bounded_length() -> None:
    assert error_line(OSError(" libjvm:\n  not found\n")) == "libjvm: not found"
    assert error_line(LookupError("x" * 1_000)) == "x" * 300
    assert error_line(ValueError()) == "no reason given"


@pytest.mark.parametrize(
    ("name", "most", "short"),
    [
        ("orders-0", 8, "orders-0"),
        ("orders_enriched-1204", 13, "orders…d-1204"),
        ("orders_enriched-1204", 12, "order…d-1204"),
        ("abcdef", 3, "a…f"),
    ],
)
def test_a_long_name_is_cut_in_its_middle(name: str, most: int, short: str) -> None:
    assert shorten(name, most) == short
    assert len(short) <= most


@pytest.mark.parametrize(
    ("name", "value", "label"),
    [
        ("open_too_long_s", 60.0, ("open too long", "1 min")),
        ("minutes_d", 7.0, ("minutes", "7 d")),
        ("reconcile_every_s", 0.0, ("reconcile every", "never")),
        ("abort_percent", 20.0, ("abort", "20 %")),
        ("batch_slow_factor", 5.0, ("batch slow", "5 times as long as usual")),
        ("blocked_records", 10_000.0, ("blocked records", "10,000")),
    ],
)
def test_numbers_of_the_configuration_have_words_and_units(
    name: str, value: float, label: tuple[str, str]
) -> None:
    assert setting_labels({name: value}) == [(name, *label)]
