"""Whose it is: the team to call, from the configuration's `[[owners]]`."""

from __future__ import annotations

from django.conf import settings

from dashboard.models import FindingRecord
from fenceline.applications import application_of
from fenceline.owners import Owner, owner_of


def whose(*names: str) -> Owner | None:
    """Return the owner of something by its names, the most telling first; None where none is configured."""
    return owner_of(filter(None, names), settings.FENCELINE.owners)


def of_transaction(transactional_id: str) -> Owner | None:
    """Return the owner of a transactional id, by itself or by its application; None without an id."""
    return whose(transactional_id, application_of(transactional_id).application) if transactional_id else None


def split(name: str) -> tuple[str, int] | None:
    """Return topic and number of `topic-number`, None where it is none."""
    topic, dash, number = name.rpartition("-")
    return (topic, int(number)) if topic and dash and number.isascii() and number.isdigit() else None


def of_finding(row: FindingRecord) -> Owner | None:
    """Return the owner of what a finding is about."""
    kind, _, name = row.subject.partition(":")
    if kind == "transaction":
        return of_transaction(name)
    if kind == "partition" and (at := split(name)):
        return whose(name, at[0])
    return whose(name) if kind in ("group", "application") else None
