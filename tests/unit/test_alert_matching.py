"""Proves how matchers are read, and what they match."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.alerts import matchers as matching
from fenceline.alerts.matchers import Matcher, MatcherSet
from fenceline.findings.rule_names import REMOVED, RENAMED
from fenceline.rules import RULES


def python_pattern(pattern: str) -> Callable[[str], bool]:
    """Patterns by the standard library: the texts of this file are trusted."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(str(error)) from error
    return lambda text: compiled.fullmatch(text) is not None


def is_matched(text: str, labels: Mapping[str, str]) -> bool:
    return MatcherSet(matching.parse_matchers(text), python_pattern).matches(labels)


LABELS = {"team": "Payments", "topic": "orders", "subject": 'say "hi", you'}


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        (1, 'team="Payments"', [("team", "=", "Payments")]),
        (2, 'team = "a" , topic!="b"', [("team", "=", "a"), ("topic", "!=", "b")]),
        (3, '{team=~"a|b", topic!~"c.*",}', [("team", "=~", "a|b"), ("topic", "!~", "c.*")]),
        (4, "team=Payments,topic=orders", [("team", "=", "Payments"), ("topic", "=", "orders")]),
        (5, 'a="1"\nb="2"\r\n\n c="3" ', [("a", "=", "1"), ("b", "=", "2"), ("c", "=", "3")]),
        (6, r'a="say \"hi\", \\ \n"', [("a", "=", 'say "hi", \\ \n')]),
        (7, r'a=~"\d+\.x"', [("a", "=~", r"\d+\.x")]),
        (8, 'a=""', [("a", "=", "")]),
        (9, "  ", []),
        (10, "{}", []),
        (11, 'a="b,c}"', [("a", "=", "b,c}")]),
    ],
)
def test_matchers_are_read(number: int, text: str, expected: list[tuple[str, str, str]]) -> None:
    assert matching.parse_matchers(text) == expected, f"case {number}"


@pytest.mark.parametrize(
    ("number", "text", "says"),
    [
        (1, "team", "“team” cannot be read"),
        (2, 'team=="a"', "cannot be read"),
        (3, 'a="1" b="2"', "and a comma between two"),
        (4, 'a="unfinished', "cannot be read"),
        (5, '1a="x"', "cannot be read"),
        (6, f'a="{"a" * 1001}"', "too long"),
        (7, ",".join(['a="1"'] * 21), "at most 20"),
    ],
)
def test_unreadable_matchers_are_refused_with_a_reason(number: int, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        matching.parse_matchers(text)


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        (1, "", True),
        (2, 'team="Payments"', True),
        (3, 'team="payments"', False),
        (4, 'team!="Orders"', True),
        (5, 'team=~"Pay"', False),
        (6, 'team=~"Pay.*|Orders"', True),
        (7, 'team!~"Pay.*"', False),
        (8, 'nobody=""', True),
        (9, 'nobody=~".*"', True),
        (10, 'nobody!="x"', True),
        (11, 'nobody="x"', False),
        (12, 'team="Payments",topic="payments"', False),
        (13, 'topic=~"[a-z]{6}"', True),
        (14, 'topic=~"[^o].*"', False),
    ],
)
def test_labels_match(number: int, text: str, expected: bool) -> None:
    assert is_matched(text, LABELS) is expected, f"case {number}"


@pytest.mark.parametrize("rule", ["late", "coordinator_overdue"])
@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        (1, 'alertname="late"', True),
        (2, 'alertname="coordinator_overdue"', True),
        (3, 'alertname!="late"', False),
        (4, 'alertname=~"late|hanging"', True),
        (5, 'alertname=~"coordinator.*"', True),
        (6, 'alertname!~"la.*"', False),
        (7, 'alertname="gap"', False),
        (8, 'subject="coordinator_overdue"', False),
    ],
)
def test_a_rule_is_matched_by_each_of_its_names(rule: str, number: int, text: str, expected: bool) -> None:
    labels = {"alertname": rule, "subject": "late"}
    assert is_matched(text, labels) is expected, f"case {number}"


def test_renamed_rules_are_or_were_rules_and_no_name_is_used_again() -> None:
    assert set(RENAMED.values()) <= {*RULES, *REMOVED}
    assert not {*RENAMED, *REMOVED} & set(RULES)


@pytest.mark.parametrize("operator", ["=", "!=", "=~"])
def test_a_matcher_of_a_removed_rule_is_refused_with_where_its_facts_are(operator: str) -> None:
    with pytest.raises(ValueError, match=r"The rule progress_dropped was removed: the page of a query"):
        matching.parse_matchers(f'alertname{operator}"progress_dropped"')
    assert matching.parse_matchers('team="progress_dropped"')


@pytest.mark.parametrize("operator", ["=~", "!~"])
def test_an_unusable_pattern_matches_nothing_and_gives_the_reason(operator: str) -> None:
    made = MatcherSet([("team", "=", "Payments"), ("team", operator, "(")], python_pattern)
    assert not made.matches(LABELS)
    assert "unterminated subpattern" in made.wrong
    assert str(made) == f'team="Payments", team{operator}"("'


@given(st.lists(st.builds(Matcher, st.from_regex(r"[a-z_]{1,5}", fullmatch=True), st.just("="), st.text())))
def test_shown_matchers_are_read_back(matchers: list[Matcher]) -> None:
    shown = matching.matchers_text(matchers[:20])
    assert matching.parse_matchers(shown) == matchers[:20]


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        is_matched(text, LABELS)
