"""Owners: the team to call about an application, a transactional id, a group or a topic."""

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
    #: The name of the application behind matching ids; "" derives it from their shape and the groups.
    application: str = ""


def owner_of(names: Iterable[str], owners: Sequence[Owner]) -> Owner | None:
    """Return the first owner whose pattern matches a name, with the most specific name first; None without
    any.

    An id is matched as itself and then as its application, a partition as its topic. Case matters. An
    application that an owner names belongs to that owner.
    """
    for name in names:
        for owner in owners:
            if name == owner.application or fnmatchcase(name, owner.match):
                return owner
    return None
