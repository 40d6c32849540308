"""Alerts, channels, deliveries and silences for pages and API to show."""

import hashlib
import json
from datetime import UTC, datetime, timedelta

from dashboard.models import Alert, AlertChange, Channel, Cluster, Delivery, Silence
from tests.web.factories.clusters import MINUTE_MS, now_ms

#: The beginning of a secret that no page or answer may ever show.
SECRET = "whsec_aGVsbG8gd29ybGQgaGVsbG8gd29ybGQgaGVsbG8="
TOKEN = "T0123456789abcdefghijkl"


def alert(
    of: Cluster, subject: str = "transaction:payments-7", state: str = "firing", **fields: object
) -> Alert:
    """Return an alert that began ten minutes ago, but for `fields`; `labels` are added to the usual ones."""
    rule, severity = str(fields.get("rule", "open_too_long")), str(fields.get("severity", "critical"))
    kind, _, name = subject.partition(":")
    now = now_ms()
    labels = {
        "alertname": rule, "cluster": of.name, "severity": severity, "subject": subject[:300],
        "subject_kind": kind,
    }  # fmt: skip
    said = {
        "summary": f"{name} has been open for 10 min",
        "evidence": "it pins payments-0",
        "next_step": "Fence its producer.",
    }
    defaults: dict[str, object] = {
        "rule": rule,
        "severity": severity,
        "fingerprint": hashlib.sha256(json.dumps([of.name, rule, subject]).encode()).digest(),
        "annotations": said,
        "since_ms": now - 10 * MINUTE_MS,
        "fired_ms": None if state == "pending" else now - 9 * MINUTE_MS,
        "resolved_ms": now - MINUTE_MS if state == "resolved" else None,
        "seen_ms": now,
        "rev": 1,
    }
    more = fields.pop("labels", {})
    assert isinstance(more, dict)
    made = defaults | fields | {"labels": labels | more}
    return Alert.objects.create(cluster=of, subject=subject, state=state, **made)


def alert_change(of: Alert, *fates: list[object], settled: bool = True, new: str = "firing") -> AlertChange:
    """Return a change of an alert with what came of it."""
    return AlertChange.objects.create(
        alert=of,
        old="pending" if new == "firing" else "firing",
        new=new,
        at_ms=now_ms() - 9 * MINUTE_MS,
        said={"severity": of.severity},
        processed_at=datetime.now(UTC) if settled else None,
        fates=list(fates),
    )


def channel(name: str = "ops", **fields: object) -> Channel:
    """Return an enabled webhook."""
    defaults: dict[str, object] = {
        "kind": "webhook",
        "url": f"https://hooks.example.org/services/{TOKEN}?key={TOKEN}",
        "secret": SECRET,
        "created_by": "ada",
    }
    return Channel.objects.create(name=name, **(defaults | fields))


def delivery(of: Channel, state: str = "delivered", **fields: object) -> Delivery:
    """Return a delivery that was tried once."""
    taken = state == "delivered"
    tried = {
        "at_ms": now_ms(),
        "ms": 34,
        "request": {
            "url": "https://hooks.example.org/services/***",
            "headers": {"webhook-id": "msg_1", "webhook-signature": "v1,abc="},
        },
        "status": 200 if taken else 500,
        "headers": {"content-type": "text/plain"},
        "body": "ok" if taken else "<b>boom</b>",
        "address": "93.184.216.34",
        "error": "" if taken else "hooks.example.org answered 500. Check the receiver.",
    }
    defaults: dict[str, object] = {
        "message_id": "msg_1",
        "group_key": '{}:{alertname="open_too_long"}',
        "reason": "first_notification",
        "payload": {"version": "4", "alerts": []},
        "attempts": 1,
        "tries": [tried],
        "error": tried["error"],
        "ended_at": None if state == "pending" else datetime.now(UTC),
        "next_at": datetime.now(UTC) + timedelta(minutes=1) if state == "pending" else None,
    }
    return Delivery.objects.create(channel=of, state=state, **(defaults | fields))


def silence(*, starts_s: float = -600, ends_s: float = 3_600, **fields: object) -> Silence:
    """Return a silence, from and until seconds from now."""
    now = now_ms()
    defaults: dict[str, object] = {
        "matchers": [["alertname", "=", "open_too_long"]],
        "starts_ms": now + int(starts_s * 1_000),
        "ends_ms": now + int(ends_s * 1_000),
        "reason": "maintenance of the ledger",
        "created_by": "ada",
    }
    return Silence.objects.create(**(defaults | fields))
