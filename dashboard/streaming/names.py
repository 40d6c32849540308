"""Names of streaming queries: a finding's subject has the id alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dashboard.models import Query

_KIND = "query:"
#: Keys of one query of the database.
_KEYS = 500


def names_by_subject(cluster_id: int, subjects: Collection[str]) -> Mapping[str, str]:
    """Return the names of those subjects (`query:IDENT`) of a cluster that are streaming queries it knows."""
    idents = sorted({each.removeprefix(_KIND) for each in subjects if each.startswith(_KIND)})
    found: dict[str, str] = {}
    for at in range(0, len(idents), _KEYS):
        rows = Query.objects.filter(cluster_id=cluster_id, ident__in=idents[at : at + _KEYS])
        for row in rows.only("ident", "name", "checkpoint"):
            found[f"{_KIND}{row.ident}"] = str(row)
    return found
