"""Check, save, disable and delete channels, also of the sandbox's demo. Pages and API write through this."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from dashboard.alerts import deliver, senders, validation
from dashboard.alerts.deliver import notify_pages
from dashboard.alerts.silences import Matchers, fit_matchers
from dashboard.models import AuditEntry, Channel
from dashboard.runtime.collector_names import ALERTS
from dashboard.runtime.write_transactions import guarded_transaction, lock_row, retry_write
from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, Event
from fenceline.alerts import redact
from fenceline.alerts.labels import matchers_text
from fenceline.facts import Severity

KINDS = tuple(kind.value for kind in Channel.Kind)
SEVERITIES = tuple(severity.value for severity in Severity)
_LONGEST_URL = 2_000
#: A wait: its field, its words, its minimum and maximum in seconds, and the bounds in words.
Wait = tuple[str, str, float, float, str]
WAITS: Sequence[Wait] = (
    ("group_wait_s", "Wait for more before the first message", 0.0, 3_600.0, "0 to 3,600 (1 h)"),
    ("group_interval_s", "Between two messages of a group", 1.0, 86_400.0, "1 to 86,400 (1 d)"),
    ("repeat_interval_s", "Repeat what goes on firing after", 60.0, 2_419_200.0, "60 to 2,419,200 (28 d)"),
)
_MOST_LABELS = 20


@dataclass(frozen=True, slots=True)
class ChannelDraft:
    """A requested channel; `matchers` parses them and raises ValueError with words for a person. A `url` of
    "" keeps the known one. Waits are numbers or texts; None and "" mean the default in `[alerts]`.
    """

    name: str
    kind: str
    url: str = ""
    min_severity: str = Severity.WARNING.value
    matchers: Callable[[], Matchers] = tuple
    group_by: Sequence[str] = ()
    waits: dict[str, Any] = field(default_factory=dict)
    send_resolved: bool = True


def add(draft: ChannelDraft, *, by: str, secret: str = "", enabled: bool = True) -> Channel:
    """Save a new channel; if its kind signs messages, with this secret or a new one. Raises `Unfit`."""
    if draft.kind == Channel.Kind.WEBHOOK:
        secret = secret or known_secret(draft.url) or senders.new_secret()
    row = Channel(kind=draft.kind, secret=secret, created_by=by, enabled=enabled)
    if not enabled:
        row.disabled_at, row.disabled_why = timezone.now(), disabled_by(by)
    change(row, draft)
    return row


def change(row: Channel, draft: ChannelDraft) -> None:
    """Apply a draft to a channel, except its kind, and save it; raises `validation.Unfit` by field."""
    checks = validation.Checks()
    row.name = checks.check_field("name", lambda: _name(row, draft.name), "")
    if checks.check_field("kind", lambda: _kind(row, draft.kind), ""):
        row.url = checks.check_field("url", lambda: _url(row, draft), row.url)
    row.min_severity = checks.check_field(
        "min_severity", lambda: _one_of(draft.min_severity, "severity", SEVERITIES), row.min_severity
    )
    row.matchers = checks.check_field(
        "matchers", lambda: list(map(list, fit_matchers(draft.matchers(), none_allowed=True))), row.matchers
    )
    row.group_by = checks.check_field("group_by", lambda: _group_by(draft.group_by), row.group_by)
    for name, words, least, most, spelled in WAITS:
        asked = draft.waits.get(name)
        check = partial(validation.seconds_within, asked, words, least, most, spelled)
        setattr(row, name, checks.check_field(name, check, None))
    row.send_resolved = draft.send_resolved
    checks.raise_errors()
    _save(row)


def change_address(row: Channel, url: str) -> None:
    """Change a channel's address only. Raises `deliver.CannotSend`."""
    deliver.check_channel(row.kind, url, row.secret)
    row.url = url
    _save(row)


def _save(row: Channel) -> None:
    try:
        with transaction.atomic():
            _save_audited(row)
    except IntegrityError as error:
        # Another user took the name since the check.
        raise validation.Unfit({"name": _taken(row.name)}) from error
    notify_pages()


def _save_audited(row: Channel) -> None:
    if row.pk is None:
        row.save()
        made = _audited(row) | ({} if row.enabled else {"enabled": False})
        _record(Event.CHANNEL_CREATED, row, audit.field_changes({}, made, _SHOWN))
        return
    before = lock_row(Channel.objects.filter(pk=row.pk))
    row.save(update_fields=_WRITTEN)
    changes = audit.field_changes(_audited(before), _audited(row), _SHOWN) if before else {}
    if changes:
        _record(Event.CHANNEL_CHANGED, row, changes)


def _audited(row: Channel) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("kind", *_WRITTEN)}


def _record(event: Event, row: Channel, changes: audit.Changes | None = None) -> None:
    audit.record_change(event, AuditedSubject("channel", row.pk, row.name), changes)


#: The form of addresses and matchers in the audit log.
_SHOWN = {"url": redact.redact_url, "matchers": matchers_text}
#: The columns of a change, without the secrets and the delivery counters.
_WRITTEN = [
    "name", "url", "min_severity", "matchers", "group_by", "group_wait_s", "group_interval_s",
    "repeat_interval_s", "send_resolved",
]  # fmt: skip


def _taken(name: str) -> str:
    return f"There is a channel “{validation.clip_text(name)}” already: choose another name."


def _one_of(value: str, what: str, known: Sequence[str]) -> str:
    if value not in known:
        raise ValueError(f"“{validation.clip_text(value)}” is no {what}: take one of {', '.join(known)}.")
    return value


def _name(row: Channel, asked: str) -> str:
    name = validation.required_line(asked, "The name", validation.LONGEST_NAME)
    if Channel.objects.filter(name=name).exclude(pk=row.pk).exists():
        raise ValueError(_taken(name))
    return name


def _kind(row: Channel, asked: str) -> str:
    if asked != row.kind:
        raise ValueError("A channel's kind stays what it is: add another channel, then delete this one.")
    return _one_of(asked, "kind", KINDS)


def _url(row: Channel, draft: ChannelDraft) -> str:
    if not draft.url and row.pk is not None:
        return row.url
    url = validation.required_line(draft.url, "The address", _LONGEST_URL)
    deliver.check_channel(row.kind, url, row.secret)
    check_secret(row, url)
    return url


def _group_by(names: Sequence[str]) -> list[str]:
    if len(names) > _MOST_LABELS:
        raise ValueError(f"These are {len(names):,} labels; at most {_MOST_LABELS} make a group.")
    for name in names:
        validation.check_label_name(name)
    return list(dict.fromkeys(names))


def rotate_secret(row: Channel) -> str:
    """Give a channel a new secret and return it; the old one also signs until `end_old`. Raises
    `checks.Unfit` for a kind without signatures, or while an older secret still signs.
    """
    if not row.secret:
        raise validation.Unfit({"secret": f"A channel of kind {row.kind} signs nothing: it has no secret."})
    new, changes = senders.new_secret(), {"secret": (redact.HIDDEN, redact.HIDDEN)}
    rows = Channel.objects.filter(pk=row.pk, secret=row.secret, old_secret="")
    if not _update(row, rows, Event.CHANNEL_SECRET_ROTATED, changes, secret=new, old_secret=row.secret):
        raise validation.Unfit({"secret": "An older secret still signs: end it first, then take a new one."})
    return new


def end_old(row: Channel) -> None:
    """End an older secret: from then on only the newest one signs."""
    rows = Channel.objects.filter(pk=row.pk).exclude(old_secret="")
    _update(row, rows, Event.CHANNEL_OLD_SECRET_ENDED, {"old_secret": (redact.HIDDEN, None)}, old_secret="")


def enable(row: Channel) -> None:
    """Enable a channel again, and reset its failures."""
    with transaction.atomic():
        was_disabled = Channel.objects.filter(pk=row.pk, enabled=False).update(enabled=True)
        deliver.enable_channel(row)
        if was_disabled:
            _record(Event.CHANNEL_ENABLED, row, {"enabled": (False, True)})
    notify_pages()


def disable(row: Channel, *, by: str) -> None:
    """Disable a channel until it is enabled again; a disabled channel keeps its reason."""
    rows = Channel.objects.filter(pk=row.pk, enabled=True)
    columns = {"enabled": False, "disabled_at": timezone.now(), "disabled_why": disabled_by(by)}
    _update(row, rows, Event.CHANNEL_DISABLED, {"enabled": (True, False)}, **columns)


def _update(
    row: Channel, rows: QuerySet[Channel], event: Event, changes: audit.Changes, **columns: Any
) -> bool:
    """Update a channel if it is among `rows`, record the change and notify pages; return whether it was."""
    with transaction.atomic():
        updated = rows.update(**columns)
        if updated:
            _record(event, row, changes)
    if updated:
        notify_pages()
    return bool(updated)


def disabled_by(who: str) -> str:
    """Return the reason for a channel that a user has disabled."""
    return f"Disabled by {who}."


def delete(row: Channel) -> None:
    _delete(row)
    notify_pages()


@retry_write
def _delete(row: Channel) -> None:
    with guarded_transaction(ALERTS):
        if Channel.objects.filter(pk=row.pk).delete()[0]:
            _record(Event.CHANNEL_DELETED, row)


HOOK = "/hook"


def is_demo_receiver(url: str) -> bool:
    """Whether messages to an address go to the demo's running receiver."""
    return bool(settings.DEMO_RECEIVER) and url.strip() == urljoin(settings.DEMO_RECEIVER, HOOK)


def known_secret(url: str) -> str:
    """Return the secret with which channels sign for the demo's receiver; "" for other addresses."""
    if not is_demo_receiver(url):
        return ""
    channels = Channel.objects.filter(url=url.strip(), kind=Channel.Kind.WEBHOOK).order_by("pk")
    return channels.values_list("secret", flat=True).first() or ""


def check_secret(row: Channel, url: str) -> None:
    """Raise ValueError if the demo's receiver would answer 401 to every message of a channel."""
    if not is_demo_receiver(url):
        return
    if row.kind != Channel.Kind.WEBHOOK:
        raise ValueError("The demo's receiver takes only signed messages: add a channel of kind webhook.")
    if (known := known_secret(url)) and row.secret not in (known, ""):
        raise ValueError("The demo's receiver has another secret: add a new channel, which signs with it.")


DEMO_NAME = "demo-receiver"
#: The name of its creator: no username has spaces or parentheses.
_DEMO_BY = "make up (demo)"
_NO_DEMO = "make up, which runs no receiver now"
#: In seconds: a demo does not wait for further alerts.
_DEMO_WAITS = {"group_wait_s": 1, "group_interval_s": 5}


def sync_demo_channel(receiver: str, secret: str) -> None:
    """Make the demo's channel send to the receiver whose page is at `receiver`, "" without one.

    It is added once per database, according to the audit log: a channel that a user has deleted or renamed is
    not restored. It is disabled while its receiver is not running. Raises `validation.Unfit`
    if `[alerts] allow_private` does not name the receiver.
    """
    row, url = Channel.objects.filter(created_by=_DEMO_BY).order_by("pk").first(), urljoin(receiver, HOOK)
    if row is None:
        added = AuditEntry.objects.filter(event=Event.CHANNEL_CREATED, subject_name=DEMO_NAME)
        if receiver and not added.filter(subject_kind="channel").exists():
            draft = ChannelDraft(DEMO_NAME, Channel.Kind.WEBHOOK, url, waits=dict(_DEMO_WAITS))
            add(draft, by=_DEMO_BY, secret=secret)
        return
    parts = urlsplit(row.url)
    if (parts.hostname, parts.path) != ("127.0.0.1", HOOK):
        # A user has given it another address: leave it alone.
        return
    if not receiver:
        disable(row, by=_NO_DEMO)
        return
    if row.url != url:
        # The receiver has another port now.
        change_address(row, url)
    if not row.enabled and row.disabled_why == disabled_by(_NO_DEMO):
        enable(row)
