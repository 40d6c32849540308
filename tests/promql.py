"""What tests read of PromQL: the selectors of an expression, and the panels of a dashboard.

Only what the files of `deploy` use: a name with matchers, no subquery, no name in a matcher.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

_SELECTOR = re.compile(r"(fenceline_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|!=|=)\s*"([^"]*)"')


class Selector(NamedTuple):
    """A family and its matchers: label, operator, value."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def takes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a series is selected."""
        return name == self.name and all(
            _matches(labels.get(label, ""), operator, value) for label, operator, value in self.matchers
        )


class Panel(NamedTuple):
    """A panel of a dashboard."""

    title: str
    expressions: tuple[str, ...]


def _matches(value: str, operator: str, wanted: str) -> bool:
    if operator == "=~":
        return re.fullmatch(wanted, value) is not None
    return (value == wanted) is (operator == "=")


def selectors(expression: str) -> Iterator[Selector]:
    """Yield each selector, with one value of an alternative at a time: each value must exist."""
    for name, matchers in _SELECTOR.findall(expression):
        values = [
            [(label, operator, value) for value in (text.split("|") if operator == "=~" else [text])]
            for label, operator, text in _MATCHER.findall(matchers)
        ]
        yield from (Selector(name, chosen) for chosen in product(*values))


def panels(dashboard: Path) -> Iterator[Panel]:
    """Yield the panels of a dashboard's file."""
    for panel in json.loads(dashboard.read_text())["panels"]:
        yield Panel(panel["title"], tuple(target["expr"] for target in panel["targets"]))


def with_variables(expression: str, *, cluster: str) -> str:
    """Return an expression as Grafana sends it."""
    return expression.replace("$cluster", cluster).replace("$__rate_interval", "1m")
