"""Proves that patterns of matchers are RE2's: anchored, never slow, and refused with a clear text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.alerts.validation import compile_pattern


def regexes() -> st.SearchStrategy[str]:
    one = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\W", "[a-c0]", r"\."])
    return st.recursive(
        one,
        lambda inner: st.one_of(
            st.builds("{}{}".format, inner, inner),
            st.builds("(?:{}|{})".format, inner, inner),
            st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "+?"])),
        ),
        max_leaves=6,
    )


@given(regexes(), st.text("abc1.", max_size=8))
def test_patterns_match_what_python_matches(pattern: str, text: str) -> None:
    assert compile_pattern(pattern)(text) == bool(re.fullmatch(pattern, text))


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*a){20}b", "(a?){60}a{60}b", ".*.*.*.*.*b"])
def test_every_pattern_is_matched_in_linear_time(pattern: str) -> None:
    assert not compile_pattern(pattern)("a" * 300)


@pytest.mark.parametrize(
    ("number", "pattern", "text", "expected"),
    [
        (1, "pay", "payments", False),
        (2, "pay.*", "payments", True),
        (3, "^pay.*$", "payments", True),
        (4, "(?i)PAY.*", "payments", True),
        (5, r".*\bments", "pay-ments", True),
        (6, "a|ab", "ab", True),
        (7, ".*", "two\nlines", False),
        (8, "é.", "éü", True),
        (9, "a.c", "a\ud800c", True),
        (10, "a\ud800c", "a\ud800c", True),
    ],
)
def test_patterns_match_whole_texts(number: int, pattern: str, text: str, expected: bool) -> None:
    assert compile_pattern(pattern)(text) is expected, f"case {number}"


@pytest.mark.parametrize(
    ("number", "pattern", "says"),
    [
        (1, "(", "missing ): ("),
        (2, "a(?=b)", "invalid perl operator: (?="),
        (3, r"(a)\1", r"invalid escape sequence: \1"),
        (4, "(b{200}){200}", "invalid repetition size: {200}"),
        (5, "a++", "bad repetition operator: ++"),
        (6, r"\p{Greek}{1000}", "pattern too large"),
    ],
)
def test_an_unusable_pattern_is_refused(number: int, pattern: str, says: str) -> None:
    with pytest.raises(ValueError, match="is not a regular expression of RE2") as refused:
        compile_pattern(pattern)
    assert says in str(refused.value), f"case {number}"
