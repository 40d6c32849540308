"""Incidents of a finding, and its causes: alerts are grouped by them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dashboard.models import IncidentFinding
from dashboard.runtime.sql import in_portions
from fenceline.incidents.findings import FindingKey, IncidentCause

_CAUSE = IncidentFinding.Role.CAUSE


@dataclass(frozen=True, slots=True)
class IncidentMembership:
    """The number of a finding's incident, and the causes of the incidents in which it is an effect now. With
    several incidents the number is that in which it is the cause, else the lowest; without an open one, the
    last one's.
    """

    number: int
    causes: Sequence[IncidentCause] = ()


def memberships_of(cluster_id: int, findings: Collection[int]) -> Mapping[int, IncidentMembership]:
    """Return the memberships of findings by their keys; findings without an incident are omitted."""
    if not findings:
        return {}
    memberships = {
        key: membership for key, membership in _open_memberships(cluster_id).items() if key in findings
    }
    rest = [key for key in findings if key not in memberships]
    for rows in in_portions(IncidentFinding.objects.order_by("pk"), "finding", rest):
        for key, number in rows.values_list("finding", "incident_id"):
            memberships[key] = IncidentMembership(number)
    return memberships


def _open_memberships(cluster_id: int) -> Mapping[int, IncidentMembership]:
    rows = IncidentFinding.objects.filter(
        until_ms=None, incident__closed_ms=None, incident__cluster_id=cluster_id
    )
    as_cause: dict[int, int] = {}
    as_effect: dict[int, list[IncidentCause]] = defaultdict(list)
    columns = ("finding", "role", "incident_id", "incident__rule", "incident__subject")
    for key, role, number, rule, subject in rows.order_by("incident_id").values_list(*columns):
        if role == _CAUSE:
            as_cause.setdefault(key, number)
        else:
            as_effect[key].append(IncidentCause(number, FindingKey(rule, subject)))
    effects = {key: IncidentMembership(causes[0].incident, causes) for key, causes in as_effect.items()}
    return effects | {key: IncidentMembership(number) for key, number in as_cause.items()}
