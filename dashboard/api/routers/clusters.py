"""`/api/v1/clusters` and `/api/v1/collectors`: the configured clusters, how far each was observed, its
counts; the collectors, their progress and their cost.
"""

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.api import schemas
from dashboard.api.query_schemas import SafeAnswer, safety_fields
from dashboard.api.series_schemas import (
    OpenTransactionSeriesOut,
    SeriesFilters,
    WorstFilters,
    WorstGroups,
    series_answer,
    worst_groups,
)
from dashboard.evaluation import finding_queries
from dashboard.flow.preflight import Preflight, examine_setup
from dashboard.groups import queries as groups
from dashboard.models import Cluster
from dashboard.partitions import queries as partitions
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import (
    EVERYTHING,
    GROUPS,
    PARTITIONS,
    QUERIES,
    RECOVERIES,
    TRANSACTIONS,
)
from dashboard.runtime.loop import now_ms
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.batch_state import safe_cluster
from dashboard.system.capabilities import cluster_capabilities
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions.coordinators import Coordinators, read_coordinators
from fenceline.decode.typed import fields_of
from fenceline.facts import Severity
from fenceline.series.points import APPLICATION

router = Router(tags=["clusters"])
_NOUNS = (TRANSACTIONS, PARTITIONS, GROUPS, QUERIES, RECOVERIES)


class ClusterOut(Schema):
    """A configured cluster; `rev` rises with every change. `as_of` is given for each noun.

    `transactions` counts ids by Kafka's state, `partitions` by verdict, `groups` by status, `queries` by
    state. `groups` counts groups with a pending commit again under "pending"; `queries` counts prepared ones
    again.
    """

    cluster: str
    rev: int
    as_of: dict[str, str | None]
    transactions: dict[str, int]
    partitions: dict[str, int]
    groups: dict[str, int]
    queries: dict[str, int]
    findings: int


@router.get("", response=schemas.list_of(ClusterOut), summary="List clusters")
def list_clusters(request: HttpRequest) -> dict[str, object]:
    """Configured clusters, in one page."""
    items = [_out(row) for row in visibility.configured_clusters()]
    return schemas.list_answer(items, None, noun=EVERYTHING)


class CapabilityOut(Schema):
    """A function of Fenceline on a cluster; `state` is works, limited, missing or unknown.

    `remedies` are grants or releases that would enable it.
    """

    name: str
    words: str
    state: str
    why: str
    remedies: list[str]


class CapabilitiesOut(Schema):
    """The capabilities on a cluster; with a `trouble` the last check failed, and the items are older."""

    cluster: str
    asked_at: str | None
    trouble: str
    items: list[CapabilityOut]


@router.get("/{cluster}/capabilities", response=CapabilitiesOut, summary="The capabilities on a cluster")
def get_capabilities(request: HttpRequest, cluster: schemas.Name) -> CapabilitiesOut:
    """Return what works on a cluster, by its supported requests, Fenceline's ACLs and the internal topics."""
    known = cluster_capabilities(_find(cluster).name)
    items = [CapabilityOut(**fields_of(check)) for check in known.checks]
    return CapabilitiesOut(
        cluster=cluster, asked_at=schemas.format_iso(known.asked_ms), trouble=known.trouble, items=items
    )


@router.get("/{cluster}/safe_to_stop", response=SafeAnswer, summary="Are all queries safe to restart now?")
def get_safe_to_stop(request: HttpRequest, cluster: schemas.Name) -> dict[str, object]:
    """Whether every streaming query of a cluster is safe to restart now; for deploy scripts."""
    row, at_ms = _find(cluster), now_ms()
    prepared = streaming_batches.open_decisions(streaming_queries.of_cluster(row.name))
    return safety_fields(
        safe_cluster(row, at_ms), prepared, visibility.noun_visibility(cluster, QUERIES), at_ms
    )


@router.get(
    "/{cluster}/series",
    response=OpenTransactionSeriesOut,
    by_alias=True,
    summary="Open transactions over time",
)
def get_open_transaction_series(
    request: HttpRequest,
    cluster: schemas.Name,
    wanted: Query[SeriesFilters],
    application: schemas.Name = "",
) -> dict[str, object]:
    """The number of open transactions in a range of time, the oldest one's age, and the offsets they blocked.

    The figures are of all applications together, or of `application`.
    """
    what = f"application '{application}'" if application else f"cluster '{cluster}'"
    return series_answer(
        cluster,
        APPLICATION,
        application,
        wanted,
        is_known=lambda: not application,
        unknown=f"Nothing is known of {what}; cluster: '{cluster}'.",
    )


@router.get(
    "/{cluster}/series/groups",
    response=WorstGroups,
    by_alias=True,
    summary="The groups that were the furthest behind",
)
def get_worst_groups(
    request: HttpRequest, cluster: schemas.Name, wanted: Query[WorstFilters]
) -> dict[str, object]:
    """Groups with the greatest lag to the high watermark in a range of time, each with its steps."""
    return worst_groups(cluster, wanted)


@router.get("/{cluster}", response=ClusterOut, summary="One cluster")
def get_cluster(request: HttpRequest, cluster: schemas.Name) -> ClusterOut:
    """Return a configured cluster."""
    return _out(_find(cluster))


def _find(cluster: str) -> Cluster:
    """Return a configured cluster; raises 404 for an unknown name."""
    row = next((row for row in visibility.configured_clusters() if row.name == cluster), None)
    return schemas.known(row, f"No cluster '{cluster}' is configured.")


def _out(row: Cluster) -> ClusterOut:
    name, held = row.name, partitions.verdict_counts(row.name)
    return ClusterOut(
        cluster=name,
        rev=row.rev,
        as_of={noun: schemas.format_iso(visibility.noun_visibility(name, noun).as_of_ms) for noun in _NOUNS},
        transactions=transaction_queries.state_counts(name),
        partitions={verdict: held.count_of(verdict, internal=True) for verdict in held.users},
        groups=dict(groups.status_counts(name)),
        queries=dict(streaming_queries.state_counts(name)),
        findings=len(finding_queries.open_findings(name)),
    )


class RiskOut(Schema):
    """A misconfiguration: the fact, the risk, the remedy, and the documentation that says so."""

    check: str
    severity: Severity
    subject: str
    fact: str
    risk: str
    remedy: str
    source: str


class PreflightOut(Schema):
    """The risks to exactly-once on a cluster; `unseen` lists what could not be examined."""

    cluster: str
    risks: list[RiskOut]
    unseen: list[str]
    examined: dict[str, int]


@router.get("/{cluster}/preflight", response=PreflightOut, summary="The pre-flight of a cluster")
def get_preflight(request: HttpRequest, cluster: schemas.Name) -> Preflight:
    """Ask the brokers for their settings, and return the risks to exactly-once, worst first."""
    return examine_setup(_find(cluster), now_ms=now_ms())


class FailoverOut(Schema):
    """The effects of a broker's failure; `load_ms` is null if no load was measured.

    `alone` counts partitions without another replica.
    """

    broker: int
    partitions: int
    ids: int
    load_ms: int | None
    alone: int


class CoordinatorMoveOut(Schema):
    """Ids whose coordinator changed; `took_ms` is the longest time without one, null if unknown."""

    seen_ms: int
    from_broker: int
    to_broker: int
    partitions: list[int]
    ids: int
    took_ms: int | None


class CoordinatorsOut(Schema):
    """The coordinators of a cluster's transactional ids, and their newest moves.

    `settings` are the brokers' settings in ms; `blocks` counts the blocks of producer ids used in the last
    `blocks_ms`.
    """

    cluster: str
    failovers: list[FailoverOut]
    moves: list[CoordinatorMoveOut]
    blocks: int | None
    blocks_ms: int
    settings: dict[str, int]


@router.get("/{cluster}/coordinators", response=CoordinatorsOut, summary="The coordinators of a cluster")
def get_coordinators(request: HttpRequest, cluster: schemas.Name) -> Coordinators:
    """The ids that each broker coordinates, the time that others need to load them, and recent moves."""
    return read_coordinators(_find(cluster), now_ms=now_ms())


collectors_router = Router(tags=["collectors"])


class CollectorOut(Schema):
    """A collector; `alive`: whether its lease is valid; `behind` counts records (null: unknown).

    `requests` and `broker_ms` are its cost for the cluster since its first start. `detail` is further status
    that differs between collectors.
    """

    cluster: str = Field(validation_alias="cluster.name")
    name: str
    alive: bool
    token: int
    seen_through: schemas.Instant | None = Field(validation_alias="seen_through_ms")
    behind: int | None
    records: int
    rate_per_s: float
    undecoded: dict[str, int]
    requests: int
    broker_ms: int
    detail: dict[str, Any]
    error: str
    since: schemas.Instant | None = Field(validation_alias="since_ms")

    resolve_rate_per_s = staticmethod(lambda row: round(row.rate, 1))


@collectors_router.get("", response=schemas.list_of(CollectorOut), summary="List collectors")
def list_collectors(request: HttpRequest, cluster: schemas.Name = "") -> dict[str, object]:
    """Collectors of the configured clusters, in one page."""
    return schemas.list_answer(visibility.list_collectors(cluster), None, cluster)
