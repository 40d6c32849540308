"""Cursors: the place where a list continues, as opaque text."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ninja.errors import HttpError

#: The numbers in a cursor are below this: a database stores no larger ones.
_MOST = 2**63
Place = tuple[int | str, ...]
Row = TypeVar("Row")


def encode_cursor(of: str, *after: int | str) -> str:
    """Return a cursor of the list `of` that continues after the row at the place `after`."""
    return base64.urlsafe_b64encode(json.dumps([of, *after]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, of: str, like: tuple[type[int | str], ...]) -> Place | None:
    """Return the place in a cursor of this list, as values of the types `like`; None without a cursor.

    Any other cursor raises a 400: another list's cursor would silently continue at the wrong place.
    """
    if not cursor:
        return None
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or [type(value) for value in values] != [str, *like]:
        raise _wrong_cursor()
    if values[0] != of or not all(map(_is_storable, values)):
        raise _wrong_cursor()
    return tuple(values[1:])


def read_number(cursor: str, of: str) -> int | None:
    """Return the number in a cursor of the list `of`; None without a cursor."""
    place = decode_cursor(cursor, of, (int,))
    return None if place is None else int(place[0])


def by_key(row: Any) -> Place:
    """Return a row's place in a list ordered by primary key."""
    return (row.pk,)


def cut_page(
    of: str, rows: Sequence[Row], limit: int, place: Callable[[Row], Place] = by_key
) -> tuple[Sequence[Row], str | None]:
    """Return the first `limit` rows, and a cursor after them if there are more."""
    more = len(rows) > limit
    return rows[:limit], encode_cursor(of, *place(rows[limit - 1])) if more else None


def _is_storable(value: int | str) -> bool:
    return value.isprintable() if isinstance(value, str) else 0 <= value < _MOST


def _wrong_cursor() -> HttpError:
    return HttpError(400, "cursor: not one of this list; use the 'next' of the page before.")
