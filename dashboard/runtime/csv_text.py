"""Write rows as CSV without text that spreadsheets would run as formulas."""

import csv
import io
import json
from collections.abc import Iterable

#: Spreadsheets take a text with one of these first characters for a formula (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as lines of CSV (RFC 4180).

    An apostrophe precedes texts that a spreadsheet would take for a formula. Values other than texts and
    numbers are written as JSON, None as an empty cell.
    """
    lines = io.StringIO()
    csv.writer(lines).writerows(map(_cell, row) for row in rows)
    return lines.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    is_plain = isinstance(value, int | float | None) and not isinstance(value, bool)
    return value if is_plain else json.dumps(value)
