"""Queries for audit rows of changes and sign-ins, for page and API."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from django.db.models import Q, QuerySet, Sum
from pydantic import Field

from dashboard.models import SIGN_INS, AuditEntry
from dashboard.runtime.criteria import Name, Ranged, Search, starts_in_range

Event = AuditEntry.Event


def _beginning(*starts: str) -> Sequence[Event]:
    return [event for event in Event if event.value.startswith(starts)]


#: Groups of kinds in a filter, by their name in a URL.
Family = Literal["channels", "silences", "incidents", "scenes", "tokens", "users", "roles", "sign-ins"]
FAMILIES: Mapping[str, Sequence[Event]] = {
    "channels": _beginning("channel."),
    "silences": _beginning("silence."),
    "incidents": _beginning("incident."),
    "scenes": _beginning("scene."),
    "tokens": _beginning("token."),
    "users": _beginning("user.", "password."),
    "roles": _beginning("role."),
    "sign-ins": _beginning("sign_in.", "signed_out"),
}


class AuditCriteria(Ranged):
    """The filters of a list of audit rows."""

    event: Family | Event | None = None
    #: The full name of the actor.
    actor: Name = Field(default="", alias="who")
    #: A part of the subject, of the actor, or of an address.
    q: Search = ""


def newest_entries(
    wanted: AuditCriteria, *, before: int | None, limit: int
) -> tuple[Sequence[AuditEntry], int | None]:
    """Return the newest rows, and the number after which the list continues, None at its end."""
    rows = _filtered(wanted)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    entries = list(rows.order_by("-pk")[: limit + 1])
    return entries[:limit], entries[limit - 1].pk if len(entries) > limit else None


def counts_since(moment: datetime) -> tuple[int, int]:
    """Return the numbers of changes and of failed sign-ins since an instant."""
    recent = AuditEntry.objects.filter(at__gte=moment)
    failed = recent.filter(event=Event.SIGN_IN_FAILED).aggregate(number=Sum("count"))["number"]
    changes = [event for event in Event if event not in SIGN_INS]
    return recent.filter(event__in=changes).count(), failed or 0


def _filtered(wanted: AuditCriteria) -> QuerySet[AuditEntry]:
    rows = AuditEntry.objects.filter(starts_in_range(wanted, "at"))
    if wanted.event:
        rows = rows.filter(event__in=FAMILIES.get(wanted.event, [wanted.event]))
    if wanted.actor:
        rows = rows.filter(actor=wanted.actor)
    if not wanted.q:
        return rows
    part = Q(subject_name__icontains=wanted.q) | Q(actor__icontains=wanted.q)
    return rows.filter(part | Q(address__icontains=wanted.q))
