"""Cursors: where a list goes on, as opaque text."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ninja.errors import HttpError

#: What a cursor may hold: whole numbers up to what a database holds, and text that one takes.
_MOST = 2**63
Place = tuple[int | str, ...]
Row = TypeVar("Row")


def encode_cursor(of: str, *after: int | str) -> str:
    """Return a cursor of the list `of` that goes on behind the row whose place is `after`."""
    return base64.urlsafe_b64encode(json.dumps([of, *after]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, of: str, like: tuple[type[int | str], ...]) -> Place | None:
    """Return what `encode_cursor` was given for this list, of these types, None for no cursor.

    Anything else is a 400: another list's cursor would silently go on at the wrong place.
    """
    if not cursor:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or [type(value) for value in found] != [str, *like]:
        raise _not_ours()
    if found[0] != of or not all(map(_possible, found)):
        raise _not_ours()
    return tuple(found[1:])


def read_number(cursor: str, of: str) -> int | None:
    """Return the one number of a cursor of the list `of`, None for no cursor."""
    place = decode_cursor(cursor, of, (int,))
    return None if place is None else int(place[0])


def by_key(row: Any) -> Place:
    """Return the place of a row in a list that is ordered by key."""
    return (row.pk,)


def cut_page(
    of: str, rows: Sequence[Row], limit: int, place: Callable[[Row], Place] = by_key
) -> tuple[Sequence[Row], str | None]:
    """Return up to `limit` of some rows, and a cursor behind the last of them if there are more."""
    more = len(rows) > limit
    return rows[:limit], encode_cursor(of, *place(rows[limit - 1])) if more else None


def _possible(each: int | str) -> bool:
    return each.isprintable() if isinstance(each, str) else 0 <= each < _MOST


def _not_ours() -> HttpError:
    return HttpError(400, "cursor: not one of this list; use the 'next' of the page before.")
