"""Audit rows of changes and sign-ins: one of each event, long and hostile names among them."""

from __future__ import annotations

from typing import Any

from dashboard.models import AuditEntry
from tests.web import seed

Event = AuditEntry.Event
_CHANGES: dict[Event, dict[str, list[Any]]] = {
    Event.CHANNEL_CREATED: {
        "kind": [None, "webhook"],
        "url": [None, "https://hooks.example.org/services/***"],
        "matchers": [None, 'team="Payments", cluster=~"prod.*"'],
        "group_by": [None, ["cluster", "team"]],
        "send_resolved": [None, True],
    },
    Event.CHANNEL_CHANGED: {"min_severity": ["warning", "critical"], "group_wait_s": [None, 30.0]},
    Event.CHANNEL_SECRET_ROTATED: {"secret": ["***", "***"]},
    Event.CHANNEL_DISABLED: {"enabled": [True, False]},
    Event.SILENCE_CREATED: {"reason": [None, "maintenance of the ledger " * 12]},
    Event.USER_CHANGED: {"groups": [["viewer"], ["admin", "operator"]], "is_active": [True, False]},
    Event.PASSWORD_CHANGED: {"password": ["***", "***"]},
    Event.ROLE_CHANGED: {"permissions": [["dashboard.add_silence"], [f"dashboard.p{n}" for n in range(12)]]},
}


def entry(event: Event = Event.CHANNEL_CHANGED, **fields: Any) -> AuditEntry:
    """Return an audit row."""
    usual = {"actor": "ada", "via": "page", "address": "203.0.113.9", "subject_name": "pager"}
    return AuditEntry.objects.create(event=event, **(usual | fields))


def busy() -> None:
    """Let every event be there, and names that are hostile, long or missing."""
    for event in Event:
        entry(event, changes=_CHANGES.get(event, {}))
    entry(
        Event.SIGN_IN_FAILED,
        actor="",
        subject_name="",
        address="2001:db8:0:7:1234:5678:9abc:def0",
        count=1_234,
    )
    entry(Event.TOKEN_REVOKED, actor="manage.py revoke_token", via="command", address=None)
    entry(Event.CHANNEL_DISABLED, actor="", via="system", address=None)
    for raw in (*seed.NASTY, seed.LONG):
        name = raw.decode("utf-8", "replace").replace("\0", "")[:200]
        entry(actor=name, subject_name=name, changes={"name": [name, name[::-1]]})
