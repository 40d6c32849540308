"""Cursors: where a list goes on, as opaque text."""

from __future__ import annotations

import base64
import binascii

from ninja.errors import HttpError


def write(after: int) -> str:
    """Return a cursor that goes on behind the row whose key is `after`."""
    return base64.urlsafe_b64encode(f"after:{after}".encode()).decode().rstrip("=")


def read(cursor: str) -> int:
    """Return what `write` was given, 0 for no cursor; a 400 for anything else."""
    if not cursor:
        return 0
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        after = int(text.removeprefix("after:"))
    except (binascii.Error, ValueError):
        after = -1
    if not 0 <= after < 2**63:
        raise HttpError(400, "cursor: not one of ours; use the 'next' of the page before.")
    return after
