"""Which incident a finding belongs to, and which causes it follows from: what alerts are grouped by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dashboard.models import IncidentFinding
from fenceline.incidents.findings import FindingKey, IncidentCause

#: Keys of one query of the database.
_KEYS = 500
_CAUSE = IncidentFinding.Role.CAUSE


@dataclass(frozen=True, slots=True)
class IncidentMembership:
    """The number of a finding's incident, and the causes of those in which it is an effect now.

    Of several incidents the number is that in which it is the cause, else the lowest; of none that is open,
    the last one's.
    """

    number: int
    causes: Sequence[IncidentCause] = ()


def memberships_of(cluster_id: int, findings: Collection[int]) -> Mapping[int, IncidentMembership]:
    """Return the memberships of some findings by their keys; those that were in no incident are left out."""
    found = {key: each for key, each in _open_memberships(cluster_id).items() if key in findings}
    rest = [key for key in findings if key not in found]
    for at in range(0, len(rest), _KEYS):
        rows = IncidentFinding.objects.filter(finding__in=rest[at : at + _KEYS]).order_by("pk")
        for key, number in rows.values_list("finding", "incident_id"):
            found[key] = IncidentMembership(number)
    return found


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
    found = {key: IncidentMembership(causes[0].incident, causes) for key, causes in as_effect.items()}
    return found | {key: IncidentMembership(number) for key, number in as_cause.items()}
