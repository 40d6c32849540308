"""Every route that writes: which audit row it leaves, or why it leaves none. A new one needs a line here.

Compared with tests/web/route_permissions.py, which names every method of every route, and with
Django's admin, by `tests.web.test_audited_routes`. `{NAME}` in a path is the number of a row that it makes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dashboard.models import AuditEntry

Event = AuditEntry.Event


@dataclass(frozen=True, slots=True)
class AuditedWrite:
    """What is sent to a route so that it writes, and the event of the one row that this leaves."""

    event: Event
    body: Mapping[str, Any] = field(default_factory=dict)
    #: Columns of the channel before.
    channel: Mapping[str, Any] = field(default_factory=dict)
    #: Columns of the user before.
    user: Mapping[str, Any] = field(default_factory=dict)


_URL = "http://127.0.0.1:9/hook"
_ADDED = {"name": "new", "kind": "webhook", "url": _URL, "min_severity": "warning"}
_SILENCE = {"matchers": 'alertname="coordinator_overdue"', "reason": "ticket 4411"}
_OLD = {"old_secret": "whsec_b2xkIHNlY3JldCBvZiB0aGUgdGVzdHMh"}

#: By method and path, as in route_permissions.py.
AUDITED_WRITES: Mapping[tuple[str, str], AuditedWrite] = {
    ("POST", "/channels/add"): AuditedWrite(Event.CHANNEL_CREATED, _ADDED),
    ("POST", "/channels/{channel}/change"): AuditedWrite(
        Event.CHANNEL_CHANGED, {"name": "new", "min_severity": "warning"}
    ),
    ("POST", "/channels/{channel}/rotate"): AuditedWrite(Event.CHANNEL_SECRET_ROTATED),
    ("POST", "/channels/{channel}/end-old"): AuditedWrite(Event.CHANNEL_OLD_SECRET_ENDED, channel=_OLD),
    ("POST", "/channels/{channel}/enable"): AuditedWrite(Event.CHANNEL_ENABLED, channel={"enabled": False}),
    ("POST", "/channels/{channel}/disable"): AuditedWrite(Event.CHANNEL_DISABLED),
    ("POST", "/channels/{channel}/delete-now"): AuditedWrite(Event.CHANNEL_DELETED),
    ("POST", "/silences/make"): AuditedWrite(Event.SILENCE_CREATED, _SILENCE | {"lasts": "7200"}),
    ("POST", "/silences/{silence}/end"): AuditedWrite(Event.SILENCE_ENDED),
    ("POST", "/api/v1/channels"): AuditedWrite(Event.CHANNEL_CREATED, _ADDED),
    ("PATCH", "/api/v1/channels/{channel}"): AuditedWrite(Event.CHANNEL_CHANGED, {"name": "new"}),
    ("DELETE", "/api/v1/channels/{channel}"): AuditedWrite(Event.CHANNEL_DELETED),
    ("POST", "/api/v1/channels/{channel}/secret"): AuditedWrite(Event.CHANNEL_SECRET_ROTATED),
    ("DELETE", "/api/v1/channels/{channel}/secret/old"): AuditedWrite(
        Event.CHANNEL_OLD_SECRET_ENDED, channel=_OLD
    ),
    ("POST", "/incidents/{incident}/acknowledge"): AuditedWrite(Event.INCIDENT_ACKNOWLEDGED),
    ("POST", "/incidents/{incident}/notes"): AuditedWrite(Event.INCIDENT_NOTED, {"text": "ticket 4411"}),
    ("POST", "/api/v1/incidents/{incident}/acknowledge"): AuditedWrite(Event.INCIDENT_ACKNOWLEDGED),
    ("POST", "/api/v1/incidents/{incident}/notes"): AuditedWrite(
        Event.INCIDENT_NOTED, {"text": "ticket 4411"}
    ),
    ("POST", "/scenes/play"): AuditedWrite(Event.SCENE_PLAYED, {"scene": "zombie"}),
    ("POST", "/api/v1/silences"): AuditedWrite(Event.SILENCE_CREATED, _SILENCE | {"duration_s": 60}),
    ("DELETE", "/api/v1/silences/{silence}"): AuditedWrite(Event.SILENCE_ENDED),
    ("POST", "/access/add"): AuditedWrite(Event.USER_CREATED, {"username": "linus", "role": "viewer"}),
    ("POST", "/access/{user}/role"): AuditedWrite(Event.USER_CHANGED, {"role": "operator"}),
    ("POST", "/access/{user}/disable"): AuditedWrite(Event.USER_CHANGED),
    ("POST", "/access/{user}/clusters"): AuditedWrite(Event.USER_CHANGED, {"clusters": "prod"}),
    ("POST", "/access/{user}/enable"): AuditedWrite(Event.USER_CHANGED, user={"is_active": False}),
    ("POST", "/access/{user}/link"): AuditedWrite(Event.PASSWORD_CHANGED),
    ("POST", "/access/tokens/add"): AuditedWrite(Event.TOKEN_CREATED, {"name": "new", "role": "viewer"}),
    ("POST", "/access/tokens/revoke"): AuditedWrite(Event.TOKEN_REVOKED, {"name": "old"}),
}
_ACTION = "its own row is the audit entry: Action"
_DELIVERY = "changes no setting: the delivery is kept"
#: What leaves no row of changes, and why.
EXCEPTED: Mapping[tuple[str, str], str] = {
    ("POST", "/actions/plan"): _ACTION,
    ("POST", "/actions/{action}"): _ACTION,
    ("POST", "/api/v1/actions/plan"): _ACTION,
    ("POST", "/api/v1/actions/{action}/execute"): _ACTION,
    ("POST", "/channels/{channel}/test"): _DELIVERY,
    ("POST", "/api/v1/channels/{channel}/test"): _DELIVERY,
    ("POST", "/deliveries/{delivery}/again"): _DELIVERY,
    ("POST", "/api/v1/deliveries/{delivery}/again"): _DELIVERY,
    ("POST", "/partitions/prod/payments/0/replicas"): "asks replicas, changes nothing",
    ("POST", "/partitions/prod/payments/0/record/payload"): "tests/kafka/test_record_lens.py has its row",
    ("POST", "/partitions/prod/payments/0/record/key"): "tests/kafka/test_record_lens.py has its row",
    ("POST", "/ingest/v1/progress"): "a listener's observations, nobody's setting",
    ("POST", "/access/welcome/MQ/never"): "a link is needed: tests/web/test_access.py",
    ("POST", "/login/"): "a sign-in: tests/web/test_sign_in.py",
}
#: What a superuser may do in Django's admin, by model: (add, change, delete).
ADMIN: Mapping[str, tuple[bool, bool, bool]] = {
    "user": (True, True, True),
    "group": (True, True, True),
    "token": (False, False, True),
}
