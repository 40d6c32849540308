"""Play a failure: every scene of the sandbox, and the result of the last one. Only a sandbox has the page."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dashboard.system import access, scenes
from dashboard.system.access import actor_of
from dashboard.system.scenes import SceneBoard
from dashboard.web.rendering import (
    action_view,
    error_note,
    flash_refusal,
    forbidden_page,
    or_404,
    render_page,
    signed_in,
)
from dashboard.web.routes import PageRoute


@signed_in
def scene_list(request: HttpRequest) -> HttpResponse:
    """Show all scenes and the progress of the newest run."""
    board, problem = _board(), error_note(request)
    # The clusters' revision does not count runs.
    moves = (board.model_dump_json(), problem)
    return render_page(request, "scenes/list", lambda: _list(request, board, problem), depends_on=moves)


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


def _list(request: HttpRequest, board: SceneBoard, problem: str) -> Mapping[str, Any]:
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
        "scenes",
        "scenes",
        scene_list,
        parent="system",
        as_of_now="Which scenes were played is in the audit log.",
    ),
    PageRoute("scene-play", "scenes/play", play_scene),
)
