"""Delays a critical finding until a second poll of its sources confirms it. A tick reads stored rows, so two
ticks may evaluate one poll. A second poll is one that began after the first finding. A poll that was being
saved then does not count, so the `seen_through_ms` of its collector must have advanced twice. A delayed
finding is not opened, nor raised to critical.
"""

from collections.abc import Collection, Mapping

#: Each collector's position, by its name.
Marks = Mapping[str, int | None]
_ADVANCES = 2


#: The newest marks of a finding's collectors, and the number of advances of all of them.
_Wait = tuple[Marks, int]


class SecondPolls:
    """Findings of one cluster that wait for a second poll, from tick to tick of one lease holder."""

    def __init__(self) -> None:
        self._token: object = None
        self._waits: dict[bytes, _Wait] = {}

    def unconfirmed_findings(self, token: object, findings: Mapping[bytes, Marks]) -> Collection[bytes]:
        """Return the waiting critical findings of a tick; `findings`: those not yet open as critical, by key.
        A finding without collectors does not depend on polls and never waits. A new lease holder begins
        without history.
        """
        known = self._waits if token == self._token else {}
        waits = {key: _advanced(known.get(key), marks) for key, marks in findings.items() if marks}
        self._token, self._waits = token, waits
        return {key for key, (_, advances) in waits.items() if advances < _ADVANCES}


def _advanced(before: _Wait | None, marks: Marks) -> _Wait:
    if before is None:
        return marks, 0
    known, advances = before
    if any(mark is None or mark <= (known.get(name) or 0) for name, mark in marks.items()):
        return before
    return marks, advances + 1
