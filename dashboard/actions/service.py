"""Make a plan after checks of permission, cluster and number of subjects; for pages, admin and API."""

from collections.abc import Sequence

from dashboard.actions import planning
from dashboard.actions import store as action_store
from dashboard.models import Action
from dashboard.runtime import visibility
from dashboard.system import access
from dashboard.system.access import Actor
from fenceline.plans.plan import MOST_SUBJECTS, Act


class NotPlanned(Exception):
    """No plan was made: an HTTP status for the kind of reason, and the reason."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def plan_for(
    actor: Actor, cluster: str, act: Act, subjects: Sequence[str], *, force: bool, now_ms: int
) -> Action:
    """Inspect the cluster, make a plan, and save it; no request changes the cluster.

    Raises `NotPlanned`: 403 no permission, 404 a cluster that is not configured, 400 no subjects or too many,
    and the reasons of `planning`.
    """
    known = any(row.name == cluster for row in visibility.configured_clusters())
    # The answer says that a cluster is read_only only if the actor may see that cluster.
    if why_not := access.act_refusal(actor, act, cluster if known else "", force=force):
        raise NotPlanned(403, why_not)
    if not known:
        raise NotPlanned(404, f"No cluster “{cluster[:80]}” is configured.")
    unique = list(dict.fromkeys(subjects))
    if not 1 <= len(unique) <= MOST_SUBJECTS:
        raise NotPlanned(400, f"A plan has 1 to {MOST_SUBJECTS} subjects, and these are {len(unique):,}.")
    try:
        plan = planning.make_plan(cluster, act, unique, force=force, now_ms=now_ms)
    except planning.CannotPlan as error:
        raise NotPlanned(getattr(error, "status", 409), str(error)) from error
    return action_store.save_plan(plan, actor)
