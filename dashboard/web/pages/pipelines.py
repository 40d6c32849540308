"""Data flow: from applications through topics to groups and queries, and the pipelines in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse

from dashboard.flow import queries as flow_queries
from dashboard.flow.queries import ClusterFlow
from dashboard.history.audits import read_audits
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.runtime.criteria import Name, Search
from dashboard.web import page_context
from dashboard.web.flow.picture import FlowPicture, PipelineRow, flow_picture, path_name, pipeline_rows
from dashboard.web.flow.proof import ProofPart, proof_part, proofs_line
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.chips import Filters
from dashboard.web.list_pages import read_query, why_empty
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.routes import PageRoute
from fenceline.flow.graph import Flow, FlowGap, FlowHealth
from fenceline.flow.pipelines import Pipeline, find_pipelines
from fenceline.flow.proof import PipelineProof, pipeline_proofs, proof_document
from fenceline.flow.view import MOST_UNFOLDED, flow_around_nodes, fold_flow, search_flow
from fenceline.formatting import count_noun, format_duration
from fenceline.history.time_range import TimeRange

_MOST_GAPS = 50


class PipelinesQuery(list_forms.ListQuery):
    """The query string of the page."""

    cluster: Name = ""
    #: Part of the name of a node or of a group.
    q: Search = ""
    #: A node, as `topic:orders`: the page shows what it reads from and what reads from it.
    focus: Name = ""
    #: Whether nodes with one prefix are folded where there are many.
    fold: Literal["", "no"] = ""


class ProofQuery(list_forms.ListQuery):
    """The query string of a pipeline's proof: its cluster, and its end as `group:billing`."""

    cluster: Name = ""
    end: Name = ""


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """What the page shows of one cluster."""

    of: ClusterFlow
    picture: FlowPicture | None
    pipelines: Sequence[PipelineRow]
    more_pipelines: int
    gaps: Sequence[FlowGap]
    more_gaps: int
    #: Number of nodes before folding, 0 where none were folded.
    folded: int
    edges: int
    proofs: Sequence[PipelineProof]
    proof: ProofPart


@signed_in
def pipelines_page(request: HttpRequest) -> HttpResponse:
    """Show how data flows in the range of the query string."""
    wanted = read_query(request, PipelinesQuery)
    shown = page_context.chrome_of(request).time_range.window()
    moved = now_ms(request) // flow_queries.STEP_MS if shown.live else 0
    return render_page(request, "pipelines/page", lambda: _read(request, wanted, shown), depends_on=moved)


@signed_in
def pipeline_proof_file(request: HttpRequest) -> HttpResponse:
    """Answer with the proof of one pipeline as a JSON file."""
    wanted = read_query(request, ProofQuery)
    if wanted.ignored:
        raise Http404("Unknown pipeline.")
    shown = page_context.chrome_of(request).time_range.window()
    for cluster_flow in flow_queries.read_flows(wanted.cluster, shown, now_ms=now_ms(request)):
        for proof in _proofs(cluster_flow, cluster_flow.pipelines):
            if str(proof.pipeline.end.id) == wanted.end:
                return _file(
                    proof_document(cluster_flow.cluster, proof), f"proof-{cluster_flow.cluster}.json"
                )
    raise Http404("Unknown pipeline.")


def _file(document: Mapping[str, Any], name: str) -> HttpResponse:
    answer = JsonResponse(document, json_dumps_params={"indent": 1})
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _proofs(flow: ClusterFlow, pipelines: Sequence[Pipeline]) -> Sequence[PipelineProof]:
    audits = read_audits(settings.FENCELINE.audit_url, flow.cluster)
    return pipeline_proofs(pipelines, flow.observed, audits.manifests)


def _read(request: HttpRequest, wanted: PipelinesQuery, shown: TimeRange) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    flows = flow_queries.read_flows(frame.cluster, shown, now_ms=now_ms(request))
    whole = [flow.pipelines for flow in flows]
    problems = list(wanted.ignored)
    if wanted.focus and not any(_has(flow.flow, wanted.focus) for flow in flows):
        problems.append(f"focus “{list_forms.clip_value(wanted.focus)}” is no node of this flow")
        wanted = wanted.model_copy(update={"focus": ""})
    parts = [
        _part(flow, wanted, number, pipelines)
        for number, (flow, pipelines) in enumerate(zip(flows, whole, strict=True))
    ]
    shown_any = any(part.picture for part in parts)
    return {
        "wanted": wanted,
        "clears": Filters(request.GET, wanted).clears(),
        "problems": problems,
        "shown": shown,
        "headline": pipelines_headline([pipeline for pipelines in whole for pipeline in pipelines]),
        "proofs_line": proofs_line([proof for part in parts for proof in part.proofs]),
        "parts": parts,
        "several": len(parts) > 1,
        "limit": MOST_UNFOLDED,
        "empty": "" if shown_any else why_empty(frame, narrowed=wanted.narrowed),
    }


def _has(flow: Flow, subject: str) -> bool:
    return any(str(node) == subject for node in flow.nodes)


def _part(of: ClusterFlow, wanted: PipelinesQuery, number: int, whole: Sequence[Pipeline]) -> ClusterPart:
    flow = of.flow
    if wanted.focus:
        flow = flow_around_nodes(flow, [node for node in flow.nodes if str(node) == wanted.focus])
    if wanted.q:
        flow = search_flow(flow, wanted.q)
    pipelines = whole if flow is of.flow else find_pipelines(flow)
    drawn = flow if wanted.fold == "no" else fold_flow(flow)
    rows = pipeline_rows(of.cluster, pipelines)
    proofs = _proofs(of, pipelines)
    audits = read_audits(settings.FENCELINE.audit_url, of.cluster)
    return ClusterPart(
        of,
        flow_picture(of.cluster, drawn, f"flow-{number}") if drawn.nodes else None,
        rows,
        len(pipelines) - len(rows),
        flow.gaps[:_MOST_GAPS],
        len(flow.gaps[_MOST_GAPS:]),
        len(flow.nodes) if len(drawn.nodes) < len(flow.nodes) else 0,
        len(drawn.edges),
        proofs,
        proof_part(of.cluster, of.flow, proofs, audits, narrowed=wanted.narrowed),
    )


def pipelines_headline(pipelines: Sequence[Pipeline]) -> str:
    """Return the state of the pipelines in one sentence; the worst one decides."""
    if not pipelines:
        return "No data flow was observed."
    number = count_noun(len(pipelines), "pipeline")
    blocked = [pipeline for pipeline in pipelines if pipeline.health is FlowHealth.BLOCKED]
    if blocked:
        more = f" and {len(blocked) - 1:,} more" if len(blocked) > 1 else ""
        return (
            f"{len(blocked):,} of {number} blocked, at {blocked[0].weakest}: {path_name(blocked[0])}{more}."
        )
    unwell = [pipeline for pipeline in pipelines if pipeline.health is FlowHealth.WARNING]
    if unwell:
        return f"{number}, none blocked; {len(unwell):,} with a warning, at {unwell[0].weakest}."
    slowest = max(pipelines, key=lambda pipeline: pipeline.latency.p95_ms or 0.0)
    known = slowest.latency.p95_ms
    words = f"; the slowest takes {format_duration(round(known))} end to end (p95)" if known else ""
    unknown = sum(pipeline.health is FlowHealth.UNKNOWN for pipeline in pipelines)
    return f"{number}, none blocked{f', {unknown:,} unknown' if unknown else ''}{words}."


ROUTES = (
    PageRoute(
        "pipelines",
        "pipelines",
        pipelines_page,
        plural="pipelines",
        key="f",
        heading="Monitor",
        shows=EVERYTHING,
        searched="applications, topics, groups, queries",
    ),
    PageRoute("pipeline-proof", "pipelines/proof.json", pipeline_proof_file),
)
