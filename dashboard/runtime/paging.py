"""One page of a list whose whole length is known. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of `total`; `number` counts from 1."""

    items: Sequence[Row]
    total: int
    number: int
    size: int

    @property
    def pages(self) -> int:
        """Return how many pages there are, at least one."""
        return pages(self.total, self.size)

    @property
    def first(self) -> int:
        """Return which row of all is this page's first, counted from 1."""
        return (self.number - 1) * self.size + 1

    @property
    def last(self) -> int:
        """Return which row of all is this page's last."""
        return self.first + len(self.items) - 1


def pages(total: int, size: int) -> int:
    """Return how many pages rows fill, at least one."""
    return max(1, -(-total // size))


def part(page: int, total: int, size: int) -> tuple[int, slice]:
    """Return the number of the page that is shown for `page`, and which rows are on it."""
    number = min(max(1, page), pages(total, size))
    return number, slice((number - 1) * size, number * size)
