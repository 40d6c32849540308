"""What lists of partitions, groups, queries and episodes are asked for, parsed without failing.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dashboard.groups import queries as group_queries
from dashboard.labels.status import OUTCOME_LOOKS, WORST_STATUSES, WORST_VERDICTS
from dashboard.labels.transition import NOTABLE
from dashboard.partitions import queries as partition_queries
from dashboard.recoveries import queries as recovery_queries
from dashboard.streaming import queries as streaming_queries
from dashboard.web.forms.columns import (
    LONGEST_APPLICATION,
    check_cluster,
    one_of,
    page_number,
    place_of,
    searched,
    size_of,
)
from fenceline.facts import ABORTS

VERDICTS = (partition_queries.PINNED, *(verdict.value for verdict in WORST_VERDICTS))
STATUSES = (*(status.value for status in WORST_STATUSES), group_queries.PENDING)
OUTCOMES = tuple(OUTCOME_LOOKS)
QUERY_STATES = (streaming_queries.PREPARED, *(state.value for state in streaming_queries.WORST_STATES))
#: What can open an episode, worst first.
CAUSES = tuple(kind.value for kind in NOTABLE if kind in ABORTS)
#: Columns of figures, whose large ones are asked for.
_LARGE_FIRST = ("held", "lag", "unread", "behind", "batch")
_LONGEST_FAMILY = 200

Filter = TypeVar(
    "Filter",
    partition_queries.PartitionCriteria,
    group_queries.GroupCriteria,
    recovery_queries.RecoveryCriteria,
    streaming_queries.QueryCriteria,
)


@dataclass(frozen=True, slots=True)
class ListQuery(Generic[Filter]):
    """A parsed query string; `ignored` says in words what in it could not be used."""

    filter: Filter
    page: int = 1
    size: int = 50
    #: Where a list that has no pages goes on.
    before: tuple[int, int] | None = None
    ignored: Sequence[str] = field(default_factory=list)


def parse_partitions(
    query: Mapping[str, str], cluster: str, clusters: Sequence[str]
) -> ListQuery[partition_queries.PartitionCriteria]:
    """Return which partitions a query string asks for."""
    ignored = _checked(query, clusters)
    sort = one_of("sort", query, partition_queries.SORTS, "worst", ignored)
    wanted = partition_queries.PartitionCriteria(
        cluster=cluster,
        verdict=one_of("verdict", query, VERDICTS, "", ignored),
        q=searched(query),
        internal=one_of("internal", query, ("1",), "", ignored) == "1",
        sort=sort,
        descending=_descending(query, sort, ignored),
    )
    return ListQuery(wanted, page_number(query, ignored), size_of(query, ignored), None, ignored)


def parse_groups(
    query: Mapping[str, str], cluster: str, clusters: Sequence[str]
) -> ListQuery[group_queries.GroupCriteria]:
    """Return which groups a query string asks for."""
    ignored = _checked(query, clusters)
    sort = one_of("sort", query, group_queries.SORTS, "worst", ignored)
    wanted = group_queries.GroupCriteria(
        cluster=cluster,
        status=one_of("status", query, STATUSES, "", ignored),
        q=searched(query),
        family=_text(query, "family", _LONGEST_FAMILY),
        sort=sort,
        descending=_descending(query, sort, ignored),
    )
    return ListQuery(wanted, page_number(query, ignored), size_of(query, ignored), None, ignored)


def parse_queries(
    query: Mapping[str, str], cluster: str, clusters: Sequence[str]
) -> ListQuery[streaming_queries.QueryCriteria]:
    """Return which streaming queries a query string asks for."""
    ignored = _checked(query, clusters)
    sort = one_of("sort", query, streaming_queries.SORTS, "worst", ignored)
    wanted = streaming_queries.QueryCriteria(
        cluster=cluster,
        state=one_of("state", query, QUERY_STATES, "", ignored),
        sink=one_of("sink", query, streaming_queries.SINKS, "", ignored),
        q=searched(query),
        sort=sort,
        descending=_descending(query, sort, ignored),
    )
    return ListQuery(wanted, page_number(query, ignored), size_of(query, ignored), None, ignored)


def parse_recoveries(
    query: Mapping[str, str], cluster: str, clusters: Sequence[str]
) -> ListQuery[recovery_queries.RecoveryCriteria]:
    """Return which episodes a query string asks for."""
    ignored = _checked(query, clusters)
    wanted = recovery_queries.RecoveryCriteria(
        cluster=cluster,
        outcome=one_of("outcome", query, OUTCOMES, "", ignored),
        cause=one_of("cause", query, CAUSES, "", ignored),
        q=searched(query),
        application=_text(query, "application", LONGEST_APPLICATION),
    )
    return ListQuery(wanted, before=place_of(query, ignored), ignored=ignored)


def _checked(query: Mapping[str, str], clusters: Sequence[str]) -> list[str]:
    ignored: list[str] = []
    check_cluster(query, clusters, ignored)
    return ignored


def _descending(query: Mapping[str, str], sort: str, ignored: list[str]) -> bool:
    usual = "desc" if sort in _LARGE_FIRST else "asc"
    return one_of("dir", query, ("asc", "desc"), usual, ignored) == "desc"


def _text(query: Mapping[str, str], key: str, longest: int) -> str:
    return query.get(key, "").replace("\0", "")[:longest]
