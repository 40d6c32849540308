"""`/api/v1/pipelines`: the data flow, its end-to-end latency, and its proofs of exactly-once."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboard.api import schemas
from dashboard.flow import queries as flow_queries
from dashboard.flow.queries import ClusterFlow
from dashboard.history.audits import read_audits
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.runtime.criteria import Criteria, Name, Search
from fenceline.audit.manifest import AuditedBatch, AuditedRange, AuditMode, AuditObstacle, AuditVerdict
from fenceline.flow.graph import FlowEdge, FlowHealth, FlowNode, LinkKind, NodeKind, RateUnit
from fenceline.flow.pipelines import Pipeline
from fenceline.flow.proof import Guarantee, pipeline_proofs, proof_document
from fenceline.flow.view import flow_around_nodes, search_flow
from fenceline.history.time_range import TimeRange

router = Router(tags=["pipelines"])


class FlowNodeOut(Schema):
    """A node of the flow; for a query `name` is its id and `label` its name."""

    kind: NodeKind = Field(validation_alias="id.kind")
    name: str = Field(validation_alias="id.name")
    label: str
    health: FlowHealth
    detail: str


class ClusterEdge(NamedTuple):
    """An edge with its two nodes."""

    cluster: str
    edge: FlowEdge
    source: FlowNode
    target: FlowNode


class ClusterPipeline(NamedTuple):
    """A pipeline of a cluster."""

    cluster: str
    pipeline: Pipeline


class FlowEdgeOut(Schema):
    """An edge of the flow, from one node to another; unknown fields are null.

    `group` is set only for `processes`: the group whose offsets the application's transactions commit. `rate`
    counts `rate_unit` per minute. `p50_ms` and `p95_ms` depend on the kind. `produces` and `writes`: the time
    from a transaction's begin until its records are readable. `reads`: the duration of batches. `consumes`
    and `processes`: the age of unread records.
    """

    cluster: str
    source: FlowNodeOut
    target: FlowNodeOut
    kind: LinkKind = Field(validation_alias="edge.kind")
    group: str = Field(validation_alias="edge.group")
    health: FlowHealth = Field(validation_alias="edge.health")
    reason: str = Field(validation_alias="edge.reason")
    rate: float | None = Field(validation_alias="edge.rate")
    rate_unit: RateUnit = Field(validation_alias="edge.rate_unit")
    p50_ms: float | None = Field(validation_alias="edge.latency.p50_ms")
    p95_ms: float | None = Field(validation_alias="edge.latency.p95_ms")
    last_seen_at: schemas.Instant | None = Field(validation_alias="edge.last_ms")


class FlowGapOut(Schema):
    """A fact about a node (`kind:name`), or about the whole flow (""), that could not be observed."""

    cluster: str
    subject: str
    reason: str


class PipelineOut(Schema):
    """A pipeline: the weakest path to a last topic, group or query.

    `health` is the worst health on all paths to that end, and `weakest` the place with it. `p50_ms` and
    `p95_ms` are sums along the path; `missing` names the edges without a known latency. `starts` counts the
    nodes at which paths to the end begin.
    """

    cluster: str
    path: list[FlowNodeOut] = Field(validation_alias="pipeline.path")
    health: FlowHealth = Field(validation_alias="pipeline.health")
    weakest: str = Field(validation_alias="pipeline.weakest")
    starts: int = Field(validation_alias="pipeline.starts")
    p50_ms: float | None = Field(validation_alias="pipeline.latency.p50_ms")
    p95_ms: float | None = Field(validation_alias="pipeline.latency.p95_ms")
    missing: list[str] = Field(validation_alias="pipeline.missing")


class LinkGuaranteeOut(Schema):
    """One link of a pipeline, its guarantee and the reason; `unknown` if too little was observed."""

    source: str
    target: str
    guarantee: Guarantee
    reason: str


class PipelineAuditOut(Schema):
    """The result of the audit job's newest run for a pipeline, from its manifest.

    Unknown counts are null. Ranges are `[topic, partition, from, to]`, obstacles `[kind, where, detail,
    consequence]`.
    """

    cluster: str
    pipeline: str
    verdict: AuditVerdict
    mode: AuditMode
    run: int
    at_ms: int
    query_id: str
    sources: list[str]
    targets: list[str]
    first_batch: int | None
    proved_through: int | None
    input: int
    readable: int
    duplicated: int
    missing: int
    batches: list[AuditedBatch]
    obstacles: list[AuditObstacle]
    parts: list[str]
    condition: str
    compared: list[AuditedRange]
    losses: list[AuditedRange]
    duplicates: list[AuditedRange]


class PipelineProofOut(Schema):
    """The proof of a pipeline and the guarantees of its links; `verdict` is null without an audit.

    `path` lists its nodes as `kind:name`, and `labels` their names. `troubles` says why audits of the cluster
    cannot be read.
    """

    format: int
    cluster: str
    path: list[str]
    labels: list[str]
    verdict: AuditVerdict | None
    statements: list[str]
    guarantee: Guarantee
    weakest: LinkGuaranteeOut
    links: list[LinkGuaranteeOut]
    audits: list[PipelineAuditOut]
    troubles: list[str]


class _FlowListing(schemas.Listing):
    range_from: schemas.Instant | None = Field(serialization_alias="from")
    range_to: schemas.Instant | None = Field(serialization_alias="to")
    #: By cluster, only for a range that begins earlier.
    kept_since: dict[str, schemas.Instant | None]
    not_observed: list[FlowGapOut]


class PipelineList(_FlowListing):
    """The pipelines in `from` ≤ t < `to`, by cluster, the weakest first."""

    items: list[PipelineOut]


class FlowEdgeList(_FlowListing):
    """The edges of the flow in `from` ≤ t < `to`, by cluster and the names of their nodes."""

    items: list[FlowEdgeOut]


class ProofFilters(schemas.RangeFilters, Criteria):
    """The query string: `end` is the pipeline's last node, such as `group:billing`.

    Without `cluster` the first cluster with such a pipeline is used.
    """

    cluster: Name = ""
    end: Name = ""


class FlowFilters(schemas.ListFilters, schemas.RangeFilters, Criteria):
    """The query string: `q` is a part of a node's name, `focus` a node such as `topic:orders`."""

    cluster: Name = ""
    q: Search = ""
    focus: Name = ""


@router.get("", response=PipelineList, by_alias=True, summary="List pipelines")
def list_pipelines(request: HttpRequest, wanted: Query[FlowFilters]) -> dict[str, object]:
    """Pipelines to each last topic, group or query, the weakest first.

    `focus` and `q` select the part of the flow that is searched for pipelines. Give `from` and `to` with a
    cursor, because the range of `last` moves, and the order with it.
    """
    shown, flows = _read(wanted)
    pipelines = [ClusterPipeline(flow.cluster, pipeline) for flow in flows for pipeline in flow.pipelines]
    items, following = _cut("pipelines", pipelines, wanted)
    return {"items": items, "next": following, **_around(wanted, shown, flows)}


@router.get("/edges", response=FlowEdgeList, by_alias=True, summary="List edges of the flow")
def list_flow_edges(request: HttpRequest, wanted: Query[FlowFilters]) -> dict[str, object]:
    """Edges observed in the range: the writers and the readers of each topic."""
    shown, flows = _read(wanted)
    edges = [
        ClusterEdge(of.cluster, edge, of.flow.nodes[edge.source], of.flow.nodes[edge.target])
        for of in flows
        for edge in of.flow.edges
    ]
    items, following = _cut("flow_edges", edges, wanted)
    return {"items": items, "next": following, **_around(wanted, shown, flows)}


@router.get("/proof", response=PipelineProofOut, summary="Get the proof of a pipeline")
def get_pipeline_proof(request: HttpRequest, wanted: Query[ProofFilters]) -> dict[str, object]:
    """Return the proof of the pipeline to one end: the guarantee of each link, and the audits."""
    now_ms = time.time_ns() // 1_000_000
    shown = wanted.time_range(now_ms)
    for flow in flow_queries.read_flows(wanted.cluster, shown, now_ms=now_ms):
        audits = read_audits(settings.FENCELINE.audit_url, flow.cluster)
        pipelines = [pipeline for pipeline in flow.pipelines if str(pipeline.end.id) == wanted.end]
        for proof in pipeline_proofs(pipelines, flow.observed, audits.manifests):
            troubles = [f"{trouble.what}. {trouble.why} {trouble.remedy}" for trouble in audits.troubles]
            return proof_document(flow.cluster, proof) | {"troubles": troubles}
    raise HttpError(404, "No pipeline of this cluster leads there.")


def _read(wanted: FlowFilters) -> tuple[TimeRange, Sequence[ClusterFlow]]:
    now_ms = time.time_ns() // 1_000_000
    shown = wanted.time_range(now_ms)
    flows = flow_queries.read_flows(wanted.cluster, shown, now_ms=now_ms)
    return shown, [_narrowed(flow, wanted) for flow in flows]


def _narrowed(of: ClusterFlow, wanted: FlowFilters) -> ClusterFlow:
    flow = of.flow
    if wanted.focus:
        flow = flow_around_nodes(flow, [node for node in flow.nodes if str(node) == wanted.focus])
    if wanted.q:
        flow = search_flow(flow, wanted.q)
    return of if flow is of.flow else replace(of, flow=flow)


def _cut(of: str, rows: Sequence[schemas.Row], wanted: FlowFilters) -> tuple[list[schemas.Row], str | None]:
    """Return the items after the cursor's place, and a cursor if there are more."""
    start = schemas.read_number(wanted.cursor, of) or 0
    items = list(islice(rows, start, start + wanted.limit))
    end = start + len(items)
    return items, schemas.encode_cursor(of, end) if end < len(rows) else None


def _around(wanted: FlowFilters, shown: TimeRange, flows: Sequence[ClusterFlow]) -> dict[str, object]:
    return {
        "range_from": shown.from_ms,
        "range_to": shown.to_ms,
        "kept_since": {of.cluster: of.kept_since_ms for of in flows if of.kept_since_ms is not None},
        "not_observed": [{"cluster": of.cluster, **gap._asdict()} for of in flows for gap in of.flow.gaps],
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster, EVERYTHING)),
    }
