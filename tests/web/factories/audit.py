"""Rows of the audit log of changes and sign-ins."""

from typing import Any

from dashboard.models import AuditEntry

Event = AuditEntry.Event


def audit_entry(event: Event = Event.CHANNEL_CHANGED, **fields: Any) -> AuditEntry:
    """Return an audit row."""
    usual = {"actor": "ada", "via": "page", "address": "203.0.113.9", "subject_name": "pager"}
    return AuditEntry.objects.create(event=event, **(usual | fields))
