"""Whose it is: the team to call about an application, a transactional id, a group or a topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple


class Owner(NamedTuple):
    """One `[[owners]]` of the configuration; `match` is a shell pattern: `payments-*`."""

    match: str
    team: str
    contact: str = ""
    runbook: str = ""
    #: What pages call the application behind whatever matches; "" leaves that to what was observed.
    application: str = ""


def owner_of(names: Iterable[str], owners: Sequence[Owner]) -> Owner | None:
    """Return the first owner whose pattern matches a name, the most telling name first; None without any.

    An id is asked for as itself and then as its application, a partition as its topic. Capitals count.
    """
    for name in names:
        for owner in owners:
            if fnmatchcase(name, owner.match):
                return owner
    return None
