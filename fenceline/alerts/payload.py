"""Payloads: Alertmanager's webhook (version 4), its own API's list of alerts, and texts for chats. Pure.

Every receiver for an Alertmanager understands the first (`webhook_config` in its documentation);
`notification_reason` in it is as in Alertmanager's `notify/dedup_stage.go`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from fenceline.formatting import count_noun, format_clock

#: Maximum alerts in one message; it contains the number of further ones.
MOST_ALERTS = 100
#: Maximum alerts in a text for a chat.
MOST_IN_WORDS = 10
_LONGEST_LINE = 600
#: Go's zero time: no end yet.
_NEVER = "0001-01-01T00:00:00Z"


class SendReason(StrEnum):
    """The reason of a message, in Alertmanager's terms."""

    FIRST = "first_notification"
    NEW_ALERTS = "new_alerts_in_group"
    NEW_RESOLVED = "new_resolved_alerts"
    ALL_RESOLVED = "all_alerts_resolved"
    REPEAT = "repeat_interval_elapsed"
    #: Not in Alertmanager: a user requested a test.
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Notice:
    """One alert in a message; `ends_ms` is None while it fires."""

    fingerprint: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_ms: int
    ends_ms: int | None
    generator_url: str

    @property
    def status(self) -> str:
        """Return "firing" or "resolved"."""
        return "firing" if self.ends_ms is None else "resolved"


@dataclass(frozen=True, slots=True)
class GroupMessage:
    """A group's message to one receiver; at most MOST_ALERTS of its alerts, new ones first."""

    receiver: str
    group_key: str
    group_labels: Mapping[str, str]
    reason: SendReason
    notices: Sequence[Notice]
    #: Alerts of the group that are not in the notices.
    truncated: int
    external_url: str

    @property
    def status(self) -> str:
        """Return "firing" while any of its alerts is."""
        return "firing" if any(notice.ends_ms is None for notice in self.notices) else "resolved"


def channel_payload(kind: str, message: GroupMessage, *, now_ms: int, lives_ms: int = 0) -> Any:
    """Return the message for a channel of a kind (webhook, alertmanager, apprise), as JSON values.

    `lives_ms` is how long an Alertmanager treats an alert as firing without another message.
    """
    if kind == "alertmanager":
        return alertmanager_body(message, now_ms=now_ms, lives_ms=lives_ms)
    return message_text(message) if kind == "apprise" else webhook_body(message)


def webhook_body(message: GroupMessage) -> dict[str, Any]:
    """Return the body of Alertmanager's webhook, version 4, with `notification_reason`."""
    return {
        "version": "4",
        "groupKey": message.group_key,
        "truncatedAlerts": message.truncated,
        "status": message.status,
        "receiver": message.receiver,
        "groupLabels": dict(message.group_labels),
        "commonLabels": _common([notice.labels for notice in message.notices]),
        "commonAnnotations": _common([notice.annotations for notice in message.notices]),
        "externalURL": message.external_url,
        "notification_reason": message.reason.value,
        "alerts": [
            {"status": notice.status, **_alert(notice, notice.ends_ms), "fingerprint": notice.fingerprint}
            for notice in message.notices
        ],
    }


def alertmanager_body(message: GroupMessage, *, now_ms: int, lives_ms: int) -> list[dict[str, Any]]:
    """Return the body for Alertmanager's own `POST /api/v2/alerts`.

    It identifies an alert by its labels, and resolves one without an end after its `resolve_timeout`: so a
    firing alert contains its end.
    """
    return [
        _alert(notice, now_ms + lives_ms if notice.ends_ms is None else notice.ends_ms)
        for notice in message.notices
    ]


def message_text(message: GroupMessage) -> dict[str, str]:
    """Return a readable message: {"title", "body", "type"}; the type is apprise's `NotifyType`."""
    firing = [notice for notice in message.notices if notice.ends_ms is None]
    over = [notice for notice in message.notices if notice.ends_ms is not None]
    lines = [_line(notice) for notice in [*firing, *over][:MOST_IN_WORDS]]
    more = message.truncated + len(message.notices) - len(lines)
    if more:
        lines.append(f"and {count_noun(more, 'more alert')}: {message.external_url}/alerts")
    return {"title": _title(message, len(firing)), "body": "\n\n".join(lines), "type": _type(firing)}


def sample_message(receiver: str, *, external_url: str, now_ms: int) -> GroupMessage:
    """Return the message of a channel's test: one firing alert that needs no response."""
    labels = {"alertname": "test", "severity": "info", "subject": f"channel:{receiver}"}
    notes = {
        "summary": f"A test of the channel {receiver}",
        "evidence": "somebody asked for it; nothing is wrong",
        "next_step": "Nothing: it has arrived.",
    }
    notice = Notice("0" * 16, labels, notes, now_ms, None, f"{external_url}/alerts")
    return GroupMessage(
        receiver, '{}:{alertname="test"}', {"alertname": "test"}, SendReason.TEST, [notice], 0, external_url
    )


def format_rfc3339(ms: int) -> str:
    """Return an instant as `2026-11-22T12:17:31.204Z`; outside of the calendar, the nearest one inside."""
    bounded = min(max(ms, 0), 253_402_300_799_000)
    return f"{datetime.fromtimestamp(bounded / 1_000, UTC):%Y-%m-%dT%H:%M:%S}.{bounded % 1_000:03d}Z"


def _alert(notice: Notice, ends_ms: int | None) -> dict[str, Any]:
    return {
        "labels": dict(notice.labels),
        "annotations": dict(notice.annotations),
        "startsAt": format_rfc3339(notice.starts_ms),
        "endsAt": _NEVER if ends_ms is None else format_rfc3339(ends_ms),
        "generatorURL": notice.generator_url,
    }


def _common(sets: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the labels or annotations that all alerts share."""
    first, *others = [*sets] or [{}]
    return {
        name: value for name, value in first.items() if all(labels.get(name) == value for labels in others)
    }


def _title(message: GroupMessage, firing: int) -> str:
    over = len(message.notices) - firing
    state = f"FIRING:{firing + message.truncated}" if firing else f"RESOLVED:{over + message.truncated}"
    return f"[{state}] {' '.join(_group_names(message)) or message.receiver}"[:200]


def _group_names(message: GroupMessage) -> Iterator[str]:
    """Yield the labels that a group's alerts share, with a streaming query's name instead of its id."""
    common = _common([notice.labels for notice in message.notices])
    name = common.get("query_name", "")
    for label, value in message.group_labels.items():
        if label == "incident":
            yield from [common["alertname"]] * ("alertname" in common.keys() - message.group_labels.keys())
            yield f"#{value}"
            continue
        is_query = label == "query" or (label == "subject" and value.startswith("query:"))
        yield name if name and is_query else value


def _line(notice: Notice) -> str:
    """Return one alert in a few lines: name, severity, start, cause, next step."""
    notes, labels = notice.annotations, notice.labels
    what = notes.get("summary") or labels.get("alertname", "")
    if notice.ends_ms is not None:
        return _cut(f"Resolved at {format_clock(notice.ends_ms)}: {what}")
    team = f" ({labels['team']})" if labels.get("team") else ""
    lines = [
        f"{labels.get('severity', '')}{team}: {what}".lstrip(": "),
        notes.get("evidence", ""),
        notes.get("next_step", ""),
        notice.generator_url,
    ]
    return "\n".join(_cut(line) for line in lines if line)


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def _type(firing: Sequence[Notice]) -> str:
    severities = {notice.labels.get("severity") for notice in firing}
    if not firing:
        return "success"
    return "failure" if "critical" in severities else "warning" if "warning" in severities else "info"
