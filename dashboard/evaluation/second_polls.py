"""Delays a critical finding until a second poll of its sources finds the same.

A tick reads what is stored, so two ticks may evaluate one poll. A second poll is one that began after the
finding was first found. The one that was being saved then does not count, so the `seen_through_ms` of its
collector must have advanced twice. What is held back is not opened, nor raised to critical.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

#: By collector: how far it has seen.
Marks = Mapping[str, int | None]
#: How often a collector must have advanced.
_ADVANCES = 2


class _Wait(NamedTuple):
    """The newest marks of a finding's collectors, and how often all of them have advanced."""

    marks: Marks
    advances: int


class SecondPolls:
    """What waits for a second poll, of one cluster, from tick to tick of one holder of the lease."""

    def __init__(self) -> None:
        self._token: object = None
        self._waits: dict[bytes, _Wait] = {}

    def unconfirmed_findings(self, token: object, found: Mapping[bytes, Marks]) -> Collection[bytes]:
        """Return which critical findings of a tick wait; `found`: all that are not open as critical, by key.

        One without any collector does not rest on polls, and waits for none. After a change of the lease this
        begins anew.
        """
        known = self._waits if token == self._token else {}
        waits = {key: _advanced(known.get(key), marks) for key, marks in found.items() if marks}
        self._token, self._waits = token, waits
        return {key for key, wait in waits.items() if wait.advances < _ADVANCES}


def _advanced(before: _Wait | None, marks: Marks) -> _Wait:
    if before is None:
        return _Wait(marks, 0)
    if any(mark is None or mark <= (before.marks.get(name) or 0) for name, mark in marks.items()):
        return before
    return _Wait(marks, before.advances + 1)
