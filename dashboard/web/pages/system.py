"""Fenceline's own state: clusters, collectors, leases, positions, gaps and versions. In a sandbox also its
scenes: play a failure, and see the result of the last one.
"""

import platform
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import metadata
from typing import Any

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboard.models import Collector, Position
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import CHECKPOINTS, RECONCILE
from dashboard.system import access, capabilities, scenes
from dashboard.system.access import actor_of
from dashboard.system.metrics import own_version
from dashboard.system.readiness import find_troubles
from dashboard.system.scenes import SceneBoard
from dashboard.web import action_buttons, page_context
from dashboard.web.pages.overview import collector_states
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import (
    action_view,
    error_note,
    flash_refusal,
    forbidden_page,
    or_404,
    page_view,
    render_page,
    signed_in,
)
from dashboard.web.routes import PageRoute
from fenceline.formatting import count_noun, format_duration
from fenceline.grouping import grouped
from fenceline.kafka.reconcile import format_agreement

#: Libraries whose version affects brokers, pages or jobs.
_LIBRARIES = (
    "django",
    "channels",
    "celery",
    "redis",
    "uvicorn",
    "confluent-kafka",
    "kafka-python",
    "pyspark",
)


@page_view("system/page", collector_states)
def system_page(request: HttpRequest) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    names = [frame.cluster] if frame.cluster else [row.name for row in frame.clusters]
    shown = settings.FENCELINE.clusters
    closed = [gap for gap in visibility.gaps_closed() if frame.cluster in {"", gap.cluster.name}]
    return {
        "configured": [
            (name, shown[name].redacted_properties() if name in shown else None) for name in names
        ],
        "config_path": settings.FENCELINE.path,
        "limits": setting_labels(asdict(settings.FENCELINE.limits)),
        "retention": setting_labels(asdict(settings.FENCELINE.retention)),
        "capabilities": _capabilities(names, frame.freshness.collectors),
        "checks": list(_checks(names, frame.freshness.collectors, now_ms(request))),
        "roots": list(_roots(names, frame.freshness.collectors)),
        "topics": _topics(visibility.topic_positions(frame.cluster)),
        "gaps": [*visibility.noun_visibility(frame.cluster).gaps, *closed],
        "versions": component_versions(),
        "is_staff": bool(getattr(request.user, "is_staff", False)),
        "may_manage": not access.missing_role(action_buttons.request_actor(request), access.USERS),
        "may_audit": not access.missing_role(action_buttons.request_actor(request), access.AUDIT),
    }


def _capabilities(
    names: Sequence[str], collectors: Sequence[Collector]
) -> Sequence[capabilities.ClusterCapabilities]:
    details = {row.cluster.name: row.detail for row in collectors if row.name == capabilities.NAME}
    return [capabilities.capabilities_in(name, details.get(name, {})) for name in names]


def _roots(names: Sequence[str], collectors: Sequence[Collector]) -> Iterator[Mapping[str, Any]]:
    """Yield the configured roots of checkpoints, with the folders that their last search skipped."""
    details = {row.cluster.name: row.detail for row in collectors if row.name == CHECKPOINTS}
    for configured in settings.FENCELINE.checkpoints:
        if configured.cluster in names:
            skipped = details.get(configured.cluster, {}).get("skipped", {})
            # The collector reports a root without its final slash.
            folders = skipped.get(configured.root.rstrip("/") or configured.root, ())
            yield {
                "cluster": configured.cluster,
                "root": configured.root,
                "skipped": "; ".join(
                    f"{count_noun(number, 'folder')} {name}, as {example}"
                    for name, number, example in folders
                ),
            }


def _checks(
    names: Sequence[str], collectors: Sequence[Collector], now_ms: int
) -> Iterator[Mapping[str, Any]]:
    """Yield, for each cluster, the agreement of rows and coordinators, and the cost of all collectors."""
    for name in names:
        rows = [row for row in collectors if row.cluster.name == name]
        if rows:
            detail: dict[str, Any] = next((row.detail for row in rows if row.name == RECONCILE), {})
            requests, broker_ms = _cost(rows, now_ms // 60_000 - 1)
            yield {
                "cluster": name,
                "words": _agreement(detail),
                "compared": detail.get("compared"),
                "corrected": detail.get("corrected"),
                "hidden": detail.get("hidden"),
                "requests_per_s": requests / 60,
                "broker_ms_per_s": broker_ms / 60,
                "unseen": [*detail.get("unseen", ()), *_unread_markers(detail.get("markers_unseen", {}))],
            }


def _unread_markers(reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield why ends of transactions are not read from topics, the most common reason first."""
    for reason, number in Counter(sorted(reasons.values())).most_common():
        example = min(where for where, why in reasons.items() if why == reason)
        yield f"markers of {count_noun(number, 'partition')}, as {example}: {reason}"


def _agreement(detail: Mapping[str, Any]) -> str:
    """Return the agreement of tail and coordinators in words; from the full list if there is one."""
    if detail.get("alone"):
        return "known from lists alone"
    for which in ("", "open_"):
        if detail.get(f"{which}compared"):
            return f"agree: {format_agreement(detail[f'{which}agreed'], detail[f'{which}compared'])}"
    return "nothing to compare yet" if detail else "not asked"


def _cost(rows: Sequence[Collector], minute: int) -> tuple[int, int]:
    """Return the requests of all collectors in one minute, and the milliseconds of waiting for them."""
    costs = [cost for row in rows for cost in row.costs if cost[0] == minute]
    return sum(cost[1] for cost in costs), sum(cost[2] for cost in costs)


def _topics(rows: Sequence[Position]) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "cluster": cluster,
            "name": topic,
            "partitions": positions,
            # The records between the positions and the end, as far as both are known.
            "records_behind": sum(max(0, row.end_offset - row.next_offset) for row in positions),
        }
        for (cluster, topic), positions in grouped(
            ((row.cluster.name, row.topic), row) for row in rows
        ).items()
    ]


@cache
def component_versions() -> Sequence[tuple[str, str]]:
    """Return names and versions of Fenceline, of its runtime, and of the libraries that affect it."""
    versions = [("Fenceline", own_version()), ("Python", platform.python_version()), _database()]
    return [*versions, *((name, _version(name)) for name in _LIBRARIES)]


def _database() -> tuple[str, str]:
    if connection.vendor == "sqlite":
        return "SQLite", sqlite3.sqlite_version
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return "PostgreSQL", str(cursor.fetchone()[0])


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


#: The unit of a number by the end of its name, in milliseconds.
_UNITS_MS = {"s": 1_000, "d": 86_400_000}


def setting_labels(values: Mapping[str, float]) -> Sequence[tuple[str, str, str]]:
    """Return the names of `[limits]` or `[retention]`, their labels, and their values with a unit."""
    return [(name, *_label(name, value)) for name, value in values.items()]


def _label(name: str, value: float) -> tuple[str, str]:
    rest, _, end = name.rpartition("_")
    if end in _UNITS_MS:
        shown = format_duration(round(value * _UNITS_MS[end])) if value else "never"
        return rest.replace("_", " "), shown
    if end == "percent":
        return rest.replace("_", " "), f"{value:g} %"
    if end == "mb":
        shown = f"{value:g} MB per second of a broker" if value else "none"
        return f"{rest} of transactions", shown
    if end == "factor":
        return rest.replace("_", " "), f"{value:g} times as long as usual"
    return name.replace("_", " "), f"{value:,g}"


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer "ok", because the process is alive; no dependency is checked."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if pages can be served, else 503; each part is true or the reason why it fails."""
    parts = find_troubles()
    states = {name: trouble or True for name, trouble in parts.items()}
    return JsonResponse(states, status=503 if any(parts.values()) else 200)


@signed_in
def scene_list(request: HttpRequest) -> HttpResponse:
    board, problem = _board(), error_note(request)
    # The clusters' revision does not count runs.
    moves = (board.model_dump_json(), problem)
    return render_page(request, "scenes/list", lambda: _scenes(request, board, problem), depends_on=moves)


@action_view
def play_scene(request: HttpRequest) -> HttpResponse:
    """Request a scene and show the page, with the reason of a refusal."""
    board, actor = _board(), actor_of(request, "page")
    if refused := access.permission_refusal(actor, access.SCENES):
        return forbidden_page(request, refused)
    try:
        scenes.request_scene(board, request.POST.get("scene", ""), by=actor.name)
    except scenes.SceneRefused as error:
        flash_refusal(request, reverse("scenes"), str(error))
    return HttpResponseRedirect(reverse("scenes"), status=303)


def _board() -> SceneBoard:
    return or_404(scenes.read_board(), "Scenes are played in a running sandbox of make up only.")


def _scenes(request: HttpRequest, board: SceneBoard, problem: str) -> Mapping[str, Any]:
    return {
        "board": board,
        "newest": board.runs[0] if board.runs else None,
        "earlier": board.runs[1:],
        "cannot_play": access.permission_refusal(actor_of(request, "page"), access.SCENES),
        "problem": problem,
        "tour": scenes.tour_progress(board),
        "tour_scene": scenes.SCENE,
    }


ROUTES = (
    PageRoute(
        "system",
        "system",
        system_page,
        key="s",
        heading="Admin",
        as_of_now="Events name the blind spots of the range that you chose.",
    ),
    PageRoute(
        "scenes",
        "scenes",
        scene_list,
        parent="system",
        as_of_now="Which scenes were played is in the audit log.",
    ),
    PageRoute("scene-play", "scenes/play", play_scene),
)
