"""The columns of a table and the order that a click on each requests."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `sorted` is "ascending", "descending" or "", `dir` the direction after a click."""

    words: str
    sort: str
    css: str
    sorted: str
    dir: str


#: Words of a column, sort key or "", class, and the direction with the interesting end first.
Heading = tuple[str, str, str, str]


def table_columns(headings: Iterable[Heading], sort: str, *, descending: bool) -> Sequence[Column]:
    """Return a table's columns; a click on the sorted one reverses its direction."""
    columns = []
    for words, by, css, first in headings:
        here = bool(by) and by == sort
        turned = "asc" if descending else "desc"
        order = ("descending" if descending else "ascending") if here else ""
        columns.append(Column(words, by, css, order, turned if here else first))
    return columns
