"""Find owners, the teams to call, in the configuration's `[[owners]]`."""

from collections.abc import Collection, Mapping, Sequence

from django.conf import settings

from dashboard.models import FindingRecord, Query
from dashboard.runtime.sql import in_portions
from fenceline.kafka.applications import application_by_shape
from fenceline.owners import Owner, owner_of


def find_owner(*names: str) -> Owner | None:
    """Return the owner that matches one of the names, the most specific first; None without a match."""
    return owner_of(filter(None, names), settings.FENCELINE.owners)


def of_transaction(transactional_id: str) -> Owner | None:
    """Return the owner of a transactional id, by the id or its application; None without an id."""
    return (
        find_owner(transactional_id, application_by_shape(transactional_id).application)
        if transactional_id
        else None
    )


def split_partition(name: str) -> tuple[str, int] | None:
    """Return topic and number of `topic-number`, None for other texts."""
    topic, dash, number = name.rpartition("-")
    return (topic, int(number)) if topic and dash and number.isascii() and number.isdigit() else None


def of_finding(row: FindingRecord) -> Owner | None:
    """Return the owner of a finding's subject."""
    return of_findings([row])[row.pk]


def of_query(row: Query) -> Owner | None:
    """Return the owner of a streaming query, by its name, the prefix of its sink's ids, or its own id."""
    return find_owner(row.name, row.prefix, row.ident)


def of_findings(rows: Sequence[FindingRecord]) -> Mapping[int, Owner | None]:
    """Return the owners of findings' subjects, by the findings' numbers."""
    queries = _of_queries({row.subject for row in rows if row.subject.startswith(_QUERY)})
    return {
        row.pk: queries.get((row.cluster_id, row.subject)) or _of_subject(row.subject, row.affected)
        for row in rows
    }


def _of_queries(subjects: Collection[str]) -> Mapping[tuple[int, str], Owner | None]:
    """Return the owners of streaming queries by cluster and subject; a finding has only a query's ident."""
    idents = [subject.removeprefix(_QUERY) for subject in subjects] if settings.FENCELINE.owners else []
    owners_by_subject: dict[tuple[int, str], Owner | None] = {}
    for rows in in_portions(Query.objects.all(), "ident", idents):
        for row in rows.only("cluster_id", "name", "prefix", "ident"):
            owners_by_subject[row.cluster_id, f"{_QUERY}{row.ident}"] = of_query(row)
    return owners_by_subject


_QUERY = "query:"


def _of_subject(subject: str, affected: Sequence[str]) -> Owner | None:
    kind, _, name = subject.partition(":")
    if kind == "flink_job":
        # A job's name is a folder's, and owners' patterns match transactional ids.
        return next((_of_subject(thing, ()) for thing in affected if thing.startswith("transaction:")), None)
    if kind == "transaction":
        return of_transaction(name)
    if kind == "partition" and (at := split_partition(name)):
        return find_owner(name, at[0])
    return find_owner(name) if kind in ("group", "application", "pipeline") else None
