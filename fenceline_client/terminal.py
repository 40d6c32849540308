"""Text for terminals, pipes and scripts: tables, colours, escapes, and the options that commands share.

Ids come from a cluster, where anybody may choose them: no text is printed without `printable`.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar

import click

from fenceline.formatting import format_duration, shorten
from fenceline_client.client import FencelineClient, ListAnswer, TypedAnswer
from fenceline_client.profiles import find_access

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_GAP, _NARROWEST = "  ", 8
#: Words of states that are coloured wherever they fill a cell.
_COLOURS = {
    **dict.fromkeys(("critical", "BLOCKED", "hanging", "failed", "missing", "FAIL", "no", "opened"), "red"),
    **dict.fromkeys(("warning", "STOP", "STALL", "WARN", "limited", "warn", "unheard", "late"), "yellow"),
    **dict.fromkeys(("OK", "ok", "running", "done", "yes", "closed"), "green"),
}


@dataclass
class CommandLine:
    """The options before a command's name; the client is made when a command asks for it."""

    url: str
    insecure_http: bool

    @cached_property
    def client(self) -> FencelineClient:
        access = find_access(self.url, insecure_http=self.insecure_http)
        return FencelineClient(access.url, access.token)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print the API's JSON.")(command)


def cluster_option(command: F) -> F:
    """Add the option that limits a command to one cluster."""
    return click.option("--cluster", default="", help="Only this cluster.")(command)


def printable(text: object) -> str:
    """Return a text in which characters that could command a terminal, or hide, are written as escapes."""
    whole = str(text)
    if whole.isprintable():
        return whole
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in whole)


def say(text: str = "") -> None:
    """Print one line of an answer."""
    click.echo(printable(text))


def warn(text: str) -> None:
    """Print one line beside an answer, on stderr."""
    click.echo(f"fenceline: {printable(text)}", err=True)


def say_json(document: Any) -> None:
    """Print a document; every other character than ASCII is escaped."""
    click.echo(json.dumps(document, indent=2))


def say_list(answer: ListAnswer[T], headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a list as a table; on stderr what is missing from it. Headings of numbers end in a space."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table_lines(headings, [[shown(cell) for cell in row] for row in rows], width):
        click.echo(line)
    if answer.has_more:
        warn(f"These are the first {len(answer.items)}; --limit shows more.")
    for gap in answer.gaps:
        warn(f"Not all was seen on {gap.cluster} ({gap.source}): {gap.reason}")


def say_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print labelled lines of facts, without those that are empty."""
    for label, text in facts:
        if text:
            click.echo(f"  {label:<10}  {printable(text)}")


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """Yield the lines of a table.

    In a terminal of `width` columns the widest columns are narrowed, until all fit or none can be narrower.
    """
    cells = [[heading.rstrip() for heading in headings], *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        room = width - len(_GAP) * (len(widths) - 1)
        while sum(widths) > room and max(widths) > _NARROWEST:
            widths[widths.index(max(widths))] -= 1
    for number, row in enumerate(cells):
        fitted = list(map(_fitted, row, widths, headings))
        fitted[-1] = fitted[-1].rstrip()
        yield _GAP.join(_styled(cell, is_heading=number == 0) for cell in fitted)


def _fitted(text: str, width: int, heading: str) -> str:
    short = shorten(text, width)
    return short.rjust(width) if heading.endswith(" ") else short.ljust(width)


def _styled(cell: str, *, is_heading: bool) -> str:
    if is_heading:
        return click.style(cell, bold=True)
    colour = _COLOURS.get(cell.strip())
    return click.style(cell, fg=colour) if colour else cell


def shown(value: object) -> str:
    """Return a value as a cell shows it: numbers grouped, `-` for what is not known or empty."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(value) if value not in (None, "") else "-"


def age(instant: str | None) -> str:
    """Return how long ago an instant of the API was, "" for none."""
    return "" if instant is None else format_duration(-_ms_until(instant))


def time_left(instant: str | None) -> str:
    """Return how long it is until an instant of the API, "" for none."""
    return "" if instant is None else format_duration(_ms_until(instant))


def _ms_until(instant: str) -> int:
    try:
        left = datetime.fromisoformat(instant) - datetime.now(UTC)
    except (ValueError, TypeError):
        return 0
    return round(left.total_seconds() * 1_000)


def is_interactive() -> bool:
    """Return whether a person at a terminal can be asked."""
    return sys.stdin.isatty()


def raw_of(answers: Iterable[TypedAnswer[T]]) -> list[Any]:
    return [answer.raw for answer in answers]
