"""Operators' changes of an incident: acknowledgements and notes, each with an audit row."""

from dashboard.models import Incident, IncidentEvent
from dashboard.runtime.collector_names import JUDGE
from dashboard.runtime.write_transactions import WriteTransaction, guarded_transaction, lock_row, retry_write
from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, Event
from fenceline.incidents.findings import IncidentEventKind

_LONGEST_NAME = 200
#: The maximum length of a note, in characters.
LONGEST_NOTE = 5_000


class IncidentClosed(Exception):
    """The incident is closed and needs no acknowledgement."""


class UnfitNote(ValueError):
    """A note that is empty, too long, or has NUL."""


def usable_note(text: str) -> str:
    """Return a note without the space around it. Raises `UnfitNote`."""
    if "\0" in text or not text.strip():
        raise UnfitNote("a note is some text without NUL")
    if len(text.strip()) > LONGEST_NOTE:
        raise UnfitNote(f"a note has {LONGEST_NOTE:,} characters at most, this one {len(text.strip()):,}")
    return text.strip()


@retry_write
def acknowledge_incident(number: int, *, by: str, now_ms: int) -> bool:
    """Acknowledge an open incident; return False if it is acknowledged already.

    Raises `Incident.DoesNotExist`, `IncidentClosed`.
    """
    with guarded_transaction(JUDGE):
        row = _locked(number)
        if row.closed_ms is not None:
            raise IncidentClosed(f"Incident {number} is closed.")
        if row.acknowledged_ms is not None:
            return False
        row.acknowledged_ms, row.acknowledged_by = now_ms, by[:_LONGEST_NAME]
        row.save(update_fields=["acknowledged_ms", "acknowledged_by"])
        _add_event(row, IncidentEventKind.ACKNOWLEDGED, by, "", now_ms)
        audit.record_change(Event.INCIDENT_ACKNOWLEDGED, _subject(row))
    return True


@retry_write
def add_incident_note(number: int, text: str, *, by: str, now_ms: int) -> None:
    """Add a note to an incident, open or closed. Raises `Incident.DoesNotExist`."""
    with guarded_transaction(JUDGE):
        row = _locked(number)
        _add_event(row, IncidentEventKind.NOTE, by, text, now_ms)
        audit.record_change(Event.INCIDENT_NOTED, _subject(row), {"note": (None, text)})


def _locked(number: int) -> Incident:
    row = lock_row(Incident.objects.filter(pk=number, cluster__configured=True))
    if row is None:
        raise Incident.DoesNotExist(f"No incident {number} is known.")
    return row


def _add_event(row: Incident, kind: IncidentEventKind, by: str, text: str, now_ms: int) -> None:
    IncidentEvent.objects.create(incident=row, at_ms=now_ms, kind=kind, actor=by[:_LONGEST_NAME], text=text)
    # It locks the cluster's row, after all rows that the lease guards.
    WriteTransaction(row.cluster.name, row.cluster_id).notify_after_commit("incidents")


def _subject(row: Incident) -> AuditedSubject:
    return AuditedSubject("incident", row.pk, str(row))
