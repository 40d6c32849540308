"""Matchers on labels, in Alertmanager's syntax. Pure.

A matcher is `(label, operator, value)`; a missing label counts as "". The caller compiles regular
expressions: Alertmanager's RE2 is not in the standard library.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fenceline.findings import rule_names

#: Maximum matchers of one silence or channel, and maximum characters of one value.
MOST_MATCHERS = 20
LONGEST_VALUE = 1_000
_OPERATORS = ("=", "!=", "=~", "!~")
_MATCHER = re.compile(
    r"""(?P<label>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*"""
    r"""(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s,"{}]+))"""
    r"""(?:\s*,[\s,]*|[ \t]*\r?\n\s*|\s*\Z)""",
    re.ASCII | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

#: Turns a regular expression into a test of whole texts, linear in the text's length; raises ValueError with
#: a message for the user.
CompilePattern = Callable[[str], Callable[[str], bool]]


class Matcher(NamedTuple):
    label: str
    #: "=", "!=", "=~" or "!~".
    operator: str
    value: str

    def __str__(self) -> str:
        quoted = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.label}{self.operator}"{quoted}"'


def parse_matchers(text: str) -> list[Matcher]:
    """Parse matchers like `team="Payments", topic=~"orders.*"`, with or without braces, by commas or lines.

    Raises ValueError with words for a person: the unreadable part, and the right syntax.
    """
    rest = text.strip()
    if rest.startswith("{") and rest.endswith("}"):
        rest = rest[1:-1]
    rest = rest.strip().strip(",").strip()
    matchers: list[Matcher] = []
    at = 0
    while at < len(rest):
        matcher = _MATCHER.match(rest, at)
        if matcher is None:
            raise ValueError(
                f'“{_clip(rest[at:])}” cannot be read: write label="value", with = != =~ or !~, and a comma '
                "between two."
            )
        matchers.append(make_matcher(matcher["label"], matcher["operator"], _value(matcher)))
        at = matcher.end()
    if len(matchers) > MOST_MATCHERS:
        raise ValueError(f"These are {len(matchers)} matchers; at most {MOST_MATCHERS} are taken.")
    return matchers


def make_matcher(label: str, operator: str, value: str) -> Matcher:
    """Return a matcher with a known operator, a bounded value and no removed rule.

    Raises ValueError with a message for the user.
    """
    if operator not in _OPERATORS:
        raise ValueError(f"“{_clip(operator)}” is no operator: write one of {' '.join(_OPERATORS)}.")
    if label == "alertname" and (removed := rule_names.removed_rule(value)):
        raise ValueError(removed)
    if len(value) > LONGEST_VALUE:
        raise ValueError(f"The value of {_clip(label)} is too long: at most {LONGEST_VALUE:,} characters.")
    return Matcher(label, operator, value)


class MatcherSet:
    """Matchers that labels must all meet, with patterns compiled once; without matchers, all labels do.

    A rule is matched by each of its present and former names (`fenceline.findings.rule_names`). An unusable
    pattern matches nothing, with either operator; `wrong` describes it.
    """

    def __init__(self, matchers: Iterable[Sequence[str]], compile_pattern: CompilePattern) -> None:
        self._matchers = [Matcher(*parts) for parts in matchers]
        self._tests: list[tuple[Matcher, Callable[[str], bool]]] = []
        self.wrong = ""
        for matcher in self._matchers:
            try:
                self._tests.append((matcher, _test(matcher, compile_pattern)))
            except ValueError as error:
                self.wrong = self.wrong or str(error)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels match all matchers. Never raises."""
        return not self.wrong and all(_meets(matcher, test, labels) for matcher, test in self._tests)

    def __str__(self) -> str:
        return matchers_text(self._matchers)


def matchers_text(matchers: Iterable[Sequence[str]]) -> str:
    """Return matchers in their syntax: `team="Payments", topic=~"orders.*"`."""
    return ", ".join(str(Matcher(*parts)) for parts in matchers)


def _test(matcher: Matcher, compile_pattern: CompilePattern) -> Callable[[str], bool]:
    is_pattern = matcher.operator in ("=~", "!~")
    return compile_pattern(matcher.value) if is_pattern else matcher.value.__eq__


def _meets(matcher: Matcher, test: Callable[[str], bool], labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.label, "")
    values = rule_names.all_names(value) if matcher.label == "alertname" else (value,)
    return any(map(test, values)) is (matcher.operator in ("=", "=~"))


def _value(matcher: re.Match[str]) -> str:
    if matcher["quoted"] is None:
        return matcher["bare"]
    return _ESCAPED.sub(_unescaped, matcher["quoted"])


def _unescaped(escape: re.Match[str]) -> str:
    """Return the character of an escape; an unknown escape stays unchanged, since patterns have many."""
    return {"n": "\n", '"': '"', "\\": "\\"}.get(escape[1], escape[0])


def _clip(words: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in words.strip()[:60])
    return shown + ("…" if len(words.strip()) > 60 else "")
