"""Pages of a list with a known length."""

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
    """A page with some of `total` rows; `number` counts from 1."""

    items: Sequence[Row]
    total: int
    number: int
    size: int
    #: The number of pages, at least one.
    pages: int
    #: False if more than `total` rows match, because counting has a limit.
    whole: bool = True

    @property
    def first(self) -> int:
        """Return the position of this page's first row, counted from 1."""
        return (self.number - 1) * self.size + 1

    @property
    def last(self) -> int:
        """Return the position of this page's last row."""
        return self.first + len(self.items) - 1

    def with_items(self, items: Sequence[Other]) -> "Page[Other]":
        """Return the same page with other items."""
        return Page(items, self.total, self.number, self.size, self.pages, self.whole)


def page_of(rows: QuerySet[Any, Row] | Sequence[Row], number: Number, size: int) -> Page[Row]:
    """Return a page of ordered rows: the last for a number beyond the end, the first for an invalid one."""
    page = Paginator(rows, size).get_page(number)
    total = page.paginator.count
    return Page(list(page.object_list), total, page.number, size, page.paginator.num_pages)
