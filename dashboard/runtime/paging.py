"""One page of a list whose whole length is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.paginator import Paginator
from django.db.models import QuerySet

Row = TypeVar("Row")
Other = TypeVar("Other")
#: A page's number; text as in a URL, None for the first page.
Number = int | str | None


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of `total`; `number` counts from 1."""

    items: Sequence[Row]
    total: int
    number: int
    size: int
    #: How many pages there are, at least one.
    pages: int

    @property
    def first(self) -> int:
        """Return which row of all is this page's first, counted from 1."""
        return (self.number - 1) * self.size + 1

    @property
    def last(self) -> int:
        """Return which row of all is this page's last."""
        return self.first + len(self.items) - 1

    def with_items(self, items: Sequence[Other]) -> Page[Other]:
        """Return the same page with something else in place of each row."""
        return Page(items, self.total, self.number, self.size, self.pages)


def page_of(rows: QuerySet[Any, Row] | Sequence[Row], number: Number, size: int) -> Page[Row]:
    """Return a page of ordered rows: the last one past the end, the first one for what is no number."""
    page = Paginator(rows, size).get_page(number)
    total = page.paginator.count
    return Page(list(page.object_list), total, page.number, size, page.paginator.num_pages)
