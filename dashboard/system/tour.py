"""The tour of a sandbox: from a failure to its record, each step done once its trace exists."""

from dataclasses import dataclass
from datetime import UTC, datetime

from dashboard.models import Action, Incident
from dashboard.system.scenes import SceneBoard
from fenceline.incidents.findings import IncidentEventKind

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
