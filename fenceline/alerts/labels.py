"""An alert's labels, its annotations and the page for its messages; and matchers on labels, in Alertmanager's
syntax. Pure.

A matcher is `(label, operator, value)`; a missing label counts as "". The caller compiles regular
expressions: Alertmanager's RE2 is not in the standard library.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from fenceline import findings
from fenceline.formatting import fit_name
from fenceline.incidents.findings import OpenFinding
from fenceline.kafka.applications import application_of
from fenceline.owners import Owner

#: Longer values are cut, and end in a part of their hash, so that two long names stay distinct.
LONGEST = 300
#: By the kind of a subject: the label with its name.
_NAMES = {
    "transaction": "transactional_id",
    "group": "group",
    "query": "query",
    "application": "application",
    "collector": "collector",
    "pipeline": "pipeline",
    "flink_job": "flink_job",
}
_PAGES = {"transaction": "transactions", "group": "groups", "query": "queries", "flink_job": "flink-jobs"}
#: Names that no path can contain lead to the rule's page, which every alert has.
_ODD = frozenset({".", "..", ""})
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


def labels_of(
    finding: OpenFinding, owner: Owner | None, *, cluster: str, query_name: str = "", incident: int = 0
) -> dict[str, str]:
    """Return the labels for silences, channels and groups, without empty ones.

    `query_name`: the name of a streaming query, whose subject has its id; "" for other subjects. `incident`:
    the number of the finding's incident, 0 for none.
    """
    kind, _, name = finding.subject.partition(":")
    labels = {
        "alertname": finding.rule,
        "cluster": cluster,
        "severity": finding.severity,
        "subject": finding.subject,
        "subject_kind": kind,
        **_named(kind, name),
        "query_name": query_name,
        "incident": str(incident or ""),
    }
    if owner is not None:
        labels |= {"team": owner.team, "contact": owner.contact, "runbook": owner.runbook}
    return {label: fit_name(value, LONGEST) for label, value in labels.items() if value}


def readable_name(subject: str, labels: Mapping[str, str]) -> str:
    """Return the name that people use for a subject: a streaming query's name instead of its id."""
    kind, _, name = subject.partition(":")
    return (labels.get("query_name", "") if kind == "query" else "") or name or kind


def annotations_of(finding: OpenFinding, owner: Owner | None) -> dict[str, str]:
    """Return the texts that only people read."""
    texts = {"summary": finding.summary, "evidence": finding.evidence, "next_step": finding.next_step}
    if owner is not None:
        texts |= {"contact": owner.contact, "runbook": owner.runbook}
    return {name: value for name, value in texts.items() if value}


def page_of(labels: Mapping[str, str], external_url: str) -> str:
    """Return the address of an alert's subject from its labels; else of its rule."""
    kind, cluster = labels.get("subject_kind", ""), quote(labels.get("cluster", ""), safe="")
    if kind == "partition" and "topic" in labels:
        return f"{external_url}/partitions/{cluster}/{quote(labels['topic'], safe='')}/{labels['partition']}"
    name = labels.get(_NAMES.get(kind, ""), "")
    plain = len(name) < LONGEST and not _ODD & set(name.replace("\\", "/").split("/"))
    if kind == "pipeline":
        return f"{external_url}/pipelines?cluster={cluster}#audit-{cluster}-{quote(name, safe='')}"
    if kind in _PAGES and plain:
        return f"{external_url}/{_PAGES[kind]}/{cluster}/{quote(name, safe='')}"
    return f"{external_url}/rules/{quote(labels.get('alertname', ''), safe='')}"


def _named(kind: str, name: str) -> dict[str, str]:
    if kind == "partition":
        topic, dash, number = name.rpartition("-")
        is_one = topic and dash and number.isascii() and number.isdigit()
        return {"topic": topic, "partition": number} if is_one else {}
    labels = {_NAMES[kind]: name} if kind in _NAMES else {}
    if kind == "transaction":
        labels["application"] = application_of(name).application
    return labels


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
    if label == "alertname" and (removed := findings.removed_rule(value)):
        raise ValueError(removed)
    if len(value) > LONGEST_VALUE:
        raise ValueError(f"The value of {_clip(label)} is too long: at most {LONGEST_VALUE:,} characters.")
    return Matcher(label, operator, value)


class MatcherSet:
    """Matchers that labels must all meet, with patterns compiled once; without matchers, all labels do.

    A rule is matched by each of its present and former names (`fenceline.findings`). An unusable
    pattern matches nothing, with either operator; `wrong` describes it.
    """

    def __init__(self, matchers: Iterable[Sequence[str]], compile_pattern: CompilePattern) -> None:
        self._matchers = [Matcher(*parts) for parts in matchers]
        self._tests: list[tuple[Matcher, Callable[[str], bool]]] = []
        self.wrong = ""
        for matcher in self._matchers:
            is_pattern = matcher.operator in ("=~", "!~")
            try:
                test = compile_pattern(matcher.value) if is_pattern else matcher.value.__eq__
                self._tests.append((matcher, test))
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


def _meets(matcher: Matcher, test: Callable[[str], bool], labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.label, "")
    values = findings.all_names(value) if matcher.label == "alertname" else (value,)
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
