"""Data flow: from applications through topics to groups and queries, and the pipelines in it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from pydantic import Field

from dashboard.flow import queries as flow_queries
from dashboard.flow.queries import ClusterFlow
from dashboard.history.audits import AuditStatus, read_audits
from dashboard.labels.status import StatusLabel
from dashboard.runtime.collector_names import EVERYTHING
from dashboard.runtime.criteria import Name, Search
from dashboard.web import page_context
from dashboard.web.flow.details import (
    ClusterPipelines,
    find_listed,
    list_pipelines,
    pipeline_details,
    pipeline_page,
    proofs_line,
)
from dashboard.web.flow.picture import flow_picture, focus_url, node_url
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import Chip, Filters
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import read_query, render_page, signed_in, why_empty
from dashboard.web.routes import PageRoute
from fenceline.flow.graph import Flow, FlowHealth, FlowNode, NodeId
from fenceline.flow.pipelines import Pipeline, find_pipelines
from fenceline.flow.proof import guarantee_facts, pipeline_proofs, proof_document
from fenceline.flow.view import (
    MOST_UNFOLDED,
    cut_flow,
    flow_around_nodes,
    fold_flow,
    matching_nodes,
    search_flow,
)
from fenceline.formatting import count_noun, format_duration
from fenceline.history.time_range import TimeRange

#: Maximum gaps of a cluster, and the maximum of drawn nodes without folding.
_MOST_GAPS, _MOST_SINGLE = 50, 200
_PageNumber = int | None


class PipelinesQuery(list_forms.ListQuery):
    cluster: Name = ""
    #: Part of the name of a node or of a group.
    q: Search = ""
    #: A node, as `topic:orders`: the page shows its sources and its readers.
    focus: Name = ""
    #: Whether to fold many nodes with one prefix.
    fold: Literal["", "no"] = ""
    #: Whether a wide drawing shrinks to the page: by default as far as it stays readable.
    zoom: Literal["", "fit", "actual"] = ""
    #: The unfolded row: the end of a pipeline, such as `group:billing`, or the name of an audit.
    pipeline: Name = ""
    page: _PageNumber = Field(None, ge=1, lt=10**8)
    #: The page of the audited batches.
    batches: _PageNumber = Field(None, ge=1, lt=10**8)


class ProofQuery(list_forms.ListQuery):
    """The query string of a pipeline's proof: its cluster, and its end, such as `group:billing`."""

    cluster: Name = ""
    end: Name = ""


@signed_in
def pipelines_page(request: HttpRequest) -> HttpResponse:
    """Show the flow of data in the range of the query string."""
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
        for proof in pipeline_proofs(
            cluster_flow.pipelines, cluster_flow.observed, _audits(cluster_flow.cluster).manifests
        ):
            if str(proof.pipeline.end.id) == wanted.end:
                return _file(
                    proof_document(cluster_flow.cluster, proof), f"proof-{cluster_flow.cluster}.json"
                )
    raise Http404("Unknown pipeline.")


def _file(document: Mapping[str, Any], name: str) -> HttpResponse:
    answer = JsonResponse(document, json_dumps_params={"indent": 1})
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _audits(cluster: str) -> AuditStatus:
    return read_audits(settings.FENCELINE.audit_url, cluster)


def _read(request: HttpRequest, wanted: PipelinesQuery, shown: TimeRange) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    flows = flow_queries.read_flows(frame.cluster, shown, now_ms=now_ms(request))
    focus = next((node for flow in flows for node in flow.flow.nodes.values() if _is(node, wanted)), None)
    if wanted.focus and focus is None:
        wanted = _ignored(wanted, "focus", "is no node of this flow")
    narrowed = [_narrowed(flow.flow, wanted) for flow in flows]
    audits = [_audits(flow.cluster) for flow in flows]
    listed = list_pipelines(map(_pipelines, flows, narrowed, audits))
    chosen = find_listed(listed, wanted.pipeline) if wanted.pipeline else None
    if wanted.pipeline and chosen is None:
        wanted = _ignored(wanted, "pipeline", "is not in this list")
    parts = [_part(*pair, wanted, number) for number, pair in enumerate(zip(flows, narrowed, strict=True))]
    shown_any = any(part["picture"] for part in parts)
    return {
        "wanted": wanted,
        "clears": [*_focus_chip(request, wanted, focus), *Filters(request.GET, wanted).clears()],
        "shown": shown,
        "headline": pipelines_headline([pipeline for flow in flows for pipeline in flow.pipelines]),
        "proofs_line": proofs_line([row.proof for row in listed if row.proof]),
        "parts": parts,
        "page": pipeline_page(listed, wanted.page, chosen) if shown_any else None,
        "details": pipeline_details(chosen, wanted.batches) if chosen else None,
        "troubles": [trouble for status in audits for trouble in status.troubles] if listed else (),
        "several": len(parts) > 1,
        "empty": "" if shown_any else why_empty(frame, narrowed=wanted.narrowed),
    }


def _is(node: FlowNode, wanted: PipelinesQuery) -> bool:
    return str(node.id) == wanted.focus


def _ignored(wanted: PipelinesQuery, name: str, why: str) -> PipelinesQuery:
    """Return the query without a parameter that matches nothing, and with the reason."""
    problem = f"{name} “{list_forms.clip_value(getattr(wanted, name))}” {why}"
    return wanted.model_copy(update={name: "", "ignored": (*wanted.ignored, problem)})


def _focus_chip(request: HttpRequest, wanted: PipelinesQuery, focus: FlowNode | None) -> Sequence[Chip]:
    if focus is None:
        return ()
    look = StatusLabel(f"only around {focus.words}", "", "")
    return Filters(request.GET, wanted).chips("focus", [wanted.focus], {wanted.focus: look}, every="")


def _narrowed(flow: Flow, wanted: PipelinesQuery) -> Flow:
    if wanted.focus:
        flow = flow_around_nodes(flow, _focus(flow, wanted))
    return search_flow(flow, wanted.q) if wanted.q else flow


def _focus(flow: Flow, wanted: PipelinesQuery) -> Sequence[NodeId]:
    return [node.id for node in flow.nodes.values() if _is(node, wanted)]


def _pipelines(of: ClusterFlow, flow: Flow, audits: AuditStatus) -> ClusterPipelines:
    """Return the pipelines of a flow; audits of no pipeline only with the whole flow."""
    pipelines = of.pipelines if flow is of.flow else find_pipelines(flow)
    proofs = pipeline_proofs(pipelines, of.observed, audits.manifests)
    known = {audit.pipeline for proof in proofs for audit in proof.audits}
    others = [audit for audit in audits.manifests if audit.pipeline not in known and flow is of.flow]
    return ClusterPipelines(of.cluster, flow, guarantee_facts(of.observed, audits.manifests), proofs, others)


def _part(of: ClusterFlow, flow: Flow, wanted: PipelinesQuery, number: int) -> Mapping[str, Any]:
    drawn = _bounded(flow, wanted)
    picture = flow_picture(of.cluster, drawn, f"flow-{number}", _focusing(wanted.focus))
    is_folded = any(node.number > 1 for node in drawn.nodes.values())
    return {
        "of": of,
        "picture": picture if drawn.nodes else None,
        "note": _note(flow, drawn, wanted.focus),
        "is_folded": is_folded,
        "gaps": flow.gaps[:_MOST_GAPS],
        "more_gaps": len(flow.gaps[_MOST_GAPS:]),
    }


def _bounded(flow: Flow, wanted: PipelinesQuery) -> Flow:
    """Return the drawn part of a flow: folded by prefix, and cut to a readable size."""
    focus = _focus(flow, wanted)
    first = {*focus, *(matching_nodes(flow, wanted.q) if wanted.q else ())}
    if wanted.fold == "no":
        return cut_flow(flow, _MOST_SINGLE, first=first)
    return cut_flow(fold_flow(flow, apart=focus, beyond=wanted.q), MOST_UNFOLDED, first=first)


def _focusing(focus: str) -> Callable[[str, FlowNode], str]:
    """Return the addresses of nodes: the flow around a node; its page if that flow is shown already."""

    def url_of(cluster: str, node: FlowNode) -> str:
        is_single = node.number == 1 and str(node.id) != focus
        return focus_url(cluster, node.id) if is_single else node_url(cluster, node)

    return url_of


def _note(flow: Flow, drawn: Flow, focus: str) -> str:
    """Return a sentence about the drawn nodes, and the effect of selecting one."""
    number = sum(node.number for node in drawn.nodes.values())
    if number < len(flow.nodes):
        shown = f"{number:,} of {len(flow.nodes):,} nodes shown, the worst first"
        return f"{shown}: search or select one to see its neighbours"
    if len(drawn.nodes) < len(flow.nodes):
        return f"{number:,} nodes, grouped by prefix; blocked nodes and warnings are single"
    if focus:
        return "select the node again to open its page"
    return "select a node to see what leads to it and from it"


def pipelines_headline(pipelines: Sequence[Pipeline]) -> str:
    """Return the state of the pipelines in one sentence; the worst one decides."""
    if not pipelines:
        return "No data flow was observed."
    number = count_noun(len(pipelines), "pipeline")
    blocked = [pipeline for pipeline in pipelines if pipeline.health is FlowHealth.BLOCKED]
    if blocked:
        more = f", and {len(blocked) - 1:,} more" if len(blocked) > 1 else ""
        end, weakest = blocked[0].end, blocked[0].weakest
        at = "" if weakest == end.words else f" at {weakest}"
        return f"{len(blocked):,} of {number} blocked: {end.label}{at}{more}."
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
        key="f",
        heading="Monitor",
        shows=EVERYTHING,
        searched="applications, topics, groups, queries",
    ),
    PageRoute("pipeline-proof", "pipelines/proof.json", pipeline_proof_file),
)
