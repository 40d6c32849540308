"""Look up the names of streaming queries for findings, whose subjects have only the id."""

from collections.abc import Collection, Mapping

from dashboard.models import Query
from dashboard.runtime.sql import in_portions

_KIND = "query:"


def names_by_subject(cluster_id: int, subjects: Collection[str]) -> Mapping[str, str]:
    """Return the names of the cluster's streaming queries among the subjects (`query:IDENT`)."""
    idents = sorted({subject.removeprefix(_KIND) for subject in subjects if subject.startswith(_KIND)})
    names: dict[str, str] = {}
    for rows in in_portions(Query.objects.filter(cluster_id=cluster_id), "ident", idents):
        for row in rows.only("ident", "name", "checkpoint"):
            names[f"{_KIND}{row.ident}"] = str(row)
    return names
