"""Whose it is: the team to call, from the configuration's `[[owners]]`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from django.conf import settings

from dashboard.models import FindingRecord, Query
from fenceline.kafka.applications import application_by_shape
from fenceline.owners import Owner, owner_of


def find_owner(*names: str) -> Owner | None:
    """Return the owner of something by its names, the most telling first; None where none is configured."""
    return owner_of(filter(None, names), settings.FENCELINE.owners)


def of_transaction(transactional_id: str) -> Owner | None:
    """Return the owner of a transactional id, by itself or by its application; None without an id."""
    return (
        find_owner(transactional_id, application_by_shape(transactional_id).application)
        if transactional_id
        else None
    )


def split_partition(name: str) -> tuple[str, int] | None:
    """Return topic and number of `topic-number`, None where it is none."""
    topic, dash, number = name.rpartition("-")
    return (topic, int(number)) if topic and dash and number.isascii() and number.isdigit() else None


def of_finding(row: FindingRecord) -> Owner | None:
    """Return the owner of what a finding is about."""
    return of_findings([row])[row.pk]


def of_query(row: Query) -> Owner | None:
    """Return the owner of a streaming query, by its name, the prefix of its sink's ids, or its own id."""
    return find_owner(row.name, row.prefix, row.ident)


def of_findings(rows: Sequence[FindingRecord]) -> Mapping[int, Owner | None]:
    """Return the owners of what findings are about, by the findings' numbers."""
    queries = _of_queries({row.subject for row in rows if row.subject.startswith(_QUERY)})
    return {
        row.pk: queries.get((row.cluster_id, row.subject)) or _of_subject(row.subject, row.affected)
        for row in rows
    }


def _of_queries(subjects: Collection[str]) -> Mapping[tuple[int, str], Owner | None]:
    """Return the owners of streaming queries by cluster and subject: a finding names their ids alone."""
    idents = [subject.removeprefix(_QUERY) for subject in subjects] if settings.FENCELINE.owners else []
    found: dict[tuple[int, str], Owner | None] = {}
    for at in range(0, len(idents), _KEYS):
        rows = Query.objects.filter(ident__in=idents[at : at + _KEYS])
        for row in rows.only("cluster_id", "name", "prefix", "ident"):
            found[row.cluster_id, f"{_QUERY}{row.ident}"] = of_query(row)
    return found


_QUERY = "query:"
#: Keys of one query of the database.
_KEYS = 500


def _of_subject(subject: str, affected: Sequence[str]) -> Owner | None:
    kind, _, name = subject.partition(":")
    if kind == "flink_job":
        # Its name is a folder's: its transactional ids are what an owner's pattern names.
        return next((_of_subject(each, ()) for each in affected if each.startswith("transaction:")), None)
    if kind == "transaction":
        return of_transaction(name)
    if kind == "partition" and (at := split_partition(name)):
        return find_owner(name, at[0])
    return find_owner(name) if kind in ("group", "application", "pipeline") else None
