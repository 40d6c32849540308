"""Request failures ("scenes") that the sandbox of `make up` plays.

The stack's part `scenes` plays them. It writes the scenes and the last runs to a file in the stack's folder,
and reads a request from another. So this module does not know the sandbox; without a sandbox there is no
file. A request is created exclusively and stays until its scene is over, which allows one at a time.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile

from django.conf import settings
from django.db import transaction
from pydantic import BaseModel, ValidationError

from dashboard.models import Action, Incident
from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, Event
from fenceline.incidents.findings import IncidentEventKind

_BOARD, _REQUEST = "scenes.json", "scene-request"
#: Milliseconds after its end in which a scene's traces may still appear.
_LINGERS_MS = 60_000


class OfferedScene(BaseModel):
    """A scene of the sandbox: its story, its duration, and its traces in Fenceline."""

    name: str
    summary: str
    lasts: str
    subject: str
    #: Why this stack cannot play it, and the remedy; "" if it can.
    unavailable: str


class SceneRun(BaseModel):
    """One run of a scene; `state` is "playing", "done" or "failed"."""

    scene: str
    by: str
    state: str
    started_ms: int
    ended_ms: int | None
    #: Its steps so far.
    lines: Sequence[str]
    #: Why it failed, and the remedy; "" without a failure.
    error: str

    @property
    def lasted_ms(self) -> int:
        """Return its duration; 0 while it is playing."""
        return max(0, self.ended_ms - self.started_ms) if self.ended_ms else 0

    def until_ms(self, now_ms: int) -> int:
        """Return its end; `now_ms` while it is playing, its start if it was cut off."""
        return self.ended_ms or (now_ms if self.state == "playing" else self.started_ms)


class SceneBoard(BaseModel):
    """The scenes of the sandbox, and its runs, newest first."""

    scenes: Sequence[OfferedScene]
    runs: Sequence[SceneRun]
    #: The requested scene that has not ended, or "".
    wanted: str = ""

    def played_about(self, name: str, at_ms: int) -> SceneRun | None:
        """Return the run that caused a subject of this name, seen at an instant; None for others."""
        subjects = {scene.name: scene.subject for scene in self.scenes}
        return next(
            (
                run
                for run in self.runs
                if name.startswith(subjects.get(run.scene) or "\0")
                and run.started_ms <= at_ms <= run.until_ms(at_ms) + _LINGERS_MS
            ),
            None,
        )

    @property
    def is_waiting(self) -> bool:
        return bool(self.wanted) and not (self.runs and self.runs[0].state == "playing")


class SceneRefused(ValueError):
    """A scene is refused; the text has the reason and the remedy."""


def are_offered() -> bool:
    """Whether this is the dashboard of a running sandbox."""
    return (settings.DATA / _BOARD).is_file()


def read_board() -> SceneBoard | None:
    """Return the scenes and runs; None outside of a sandbox, or while its file cannot be read."""
    try:
        board = SceneBoard.model_validate_json((settings.DATA / _BOARD).read_bytes())
    except (OSError, ValidationError):
        return None
    return board.model_copy(update={"wanted": _wanted()})


def request_scene(board: SceneBoard, name: str, *, by: str) -> None:
    """Request a scene, with a row in the audit log; raises `SceneRefused`, also while another one plays."""
    scene = next((candidate for candidate in board.scenes if candidate.name == name), None)
    if scene is None:
        names = ", ".join(candidate.name for candidate in board.scenes)
        raise SceneRefused(f"There is no scene “{name[:60]}”: choose one of {names}.")
    if scene.unavailable:
        raise SceneRefused(f"The scene {name} cannot be played here. {scene.unavailable}")
    with transaction.atomic():
        audit.record_change(Event.SCENE_PLAYED, AuditedSubject("scene", None, name))
        # Last, so that a refused scene leaves no row.
        leave_request(settings.DATA / _REQUEST, name, by=by)


def leave_request(path: Path, scene: str, *, by: str) -> None:
    """Write the file of a request atomically; raises `SceneRefused` if one exists."""
    with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as file:
        json.dump({"scene": scene, "by": by}, file)
        file.flush()
        try:
            path.hardlink_to(file.name)
        except FileExistsError:
            raise SceneRefused(
                f"The scene {_wanted() or 'of before'} is being played: wait until it is over."
            ) from None


def _wanted() -> str:
    try:
        return str(json.loads((settings.DATA / _REQUEST).read_text())["scene"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


#: The scene of the tour, and its abandoned transactional id.
SCENE, _ID = "abandoned", "demo-abandoned"
#: The requester of automatic scenes.
_PLAYED_BY_ITSELF = "demo"


@dataclass(frozen=True, slots=True)
class TourProgress:
    """The progress of a tour: `done` has whether each of its five steps is done, in their order."""

    incident: Incident | None
    done: tuple[bool, bool, bool, bool, bool]

    @property
    def next_step(self) -> int:
        """Return the number of the first open step; 0 after the last."""
        return self.done.index(False) + 1 if False in self.done else 0


def tour_progress(board: SceneBoard) -> TourProgress:
    """Return the progress since a user last requested the scene of the tour."""
    run = next((run for run in board.runs if run.scene == SCENE and run.by != _PLAYED_BY_ITSELF), None)
    if run is None:
        return TourProgress(None, (False,) * 5)
    incidents = Incident.objects.filter(subject=f"transaction:{_ID}", opened_ms__gte=run.started_ms)
    incident = incidents.select_related("cluster").order_by("-pk").first()
    if incident is None:
        return TourProgress(None, (True, False, False, False, False))
    begun = datetime.fromtimestamp(run.started_ms / 1_000, UTC)
    ended = Action.objects.filter(subjects__contains=_ID, state=Action.State.DONE, planned_at__gte=begun)
    noted = incident.events.filter(kind=IncidentEventKind.NOTE)
    is_closed, is_acknowledged = incident.closed_ms is not None, incident.acknowledged_ms is not None
    return TourProgress(incident, (True, is_acknowledged, ended.exists(), is_closed, noted.exists()))
