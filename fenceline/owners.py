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
    #: What the application behind ids that match is called; "" leaves that to their shape and the groups.
    application: str = ""


def owner_of(names: Iterable[str], owners: Sequence[Owner]) -> Owner | None:
    """Return the first owner whose pattern matches a name, the most telling name first; None without any.

    An id is asked for as itself and then as its application, a partition as its topic. Capitals count. The
    application that an owner names is that owner's.
    """
    for name in names:
        for owner in owners:
            if name == owner.application or fnmatchcase(name, owner.match):
                return owner
    return None
