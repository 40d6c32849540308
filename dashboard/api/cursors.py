"""Cursors: where a list goes on, as opaque text."""

from __future__ import annotations

import base64
import binascii
import json

from ninja.errors import HttpError

#: What a cursor may hold: whole numbers up to what a database holds, and text.
_MOST = 2**63
Place = list[int | str]


def write(*after: int | str) -> str:
    """Return a cursor that goes on behind the row whose place is `after`."""
    return base64.urlsafe_b64encode(json.dumps(after).encode()).decode().rstrip("=")


def read(cursor: str, like: tuple[type[int | str], ...]) -> Place | None:
    """Return what `write` was given, of these types, None for no cursor; a 400 for anything else."""
    if not cursor:
        return None
    try:
        after = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        after = None
    if not isinstance(after, list) or [type(each) for each in after] != list(like):
        raise _not_ours()
    if not all(isinstance(each, str) or 0 <= each < _MOST for each in after):
        raise _not_ours()
    return after


def _not_ours() -> HttpError:
    return HttpError(400, "cursor: not one of ours; use the 'next' of the page before.")
