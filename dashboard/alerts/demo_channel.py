"""The channel of the sandbox's demo: `make up` runs a webhook receiver, and this channel sends to it.

It is added once in the life of a database: the audit log shows whether that was done, so a channel that
somebody has deleted or renamed stays so. Without its receiver it is disabled, and enabled when that is back.
"""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from dashboard.alerts import channels
from dashboard.models import AuditEntry, Channel

NAME = "demo-receiver"
#: Who has added it. No user is called so: a username has neither spaces nor parentheses.
_ADDED_BY = "make up (demo)"
_ABSENT = "make up, which runs no receiver now"
_HOOK = "/hook"
#: In seconds: in a demo nobody waits for more alerts first.
_WAITS = {"group_wait_s": 1, "group_interval_s": 5}


def sync_channel(receiver: str, secret: str) -> None:
    """Have the channel send to the receiver whose page is at `receiver`, "" where none runs.

    Raises `validation.Unfit` where `[alerts] allow_private` does not name the receiver.
    """
    row = Channel.objects.filter(created_by=_ADDED_BY).order_by("pk").first()
    if row is None:
        if receiver and not _was_added():
            _add(urljoin(receiver, _HOOK), secret)
    elif not _sends_to_receiver(row):
        # Somebody has given it another address: it is theirs.
        return
    elif not receiver:
        channels.disable(row, by=_ABSENT)
    else:
        _revive(row, urljoin(receiver, _HOOK))


def is_demo(row: Channel, receiver: str) -> bool:
    """Whether a channel sends to the receiver whose page is at `receiver`."""
    return bool(receiver) and row.url == urljoin(receiver, _HOOK)


def _was_added() -> bool:
    return AuditEntry.objects.filter(
        event=AuditEntry.Event.CHANNEL_CREATED, subject_kind="channel", subject_name=NAME
    ).exists()


def _add(url: str, secret: str) -> None:
    draft = channels.ChannelDraft(NAME, Channel.Kind.WEBHOOK, url, waits=dict(_WAITS))
    channels.add(draft, by=_ADDED_BY, secret=secret)


def _sends_to_receiver(row: Channel) -> bool:
    """Whether a channel has the address of a receiver of ours, at whatever port that was."""
    parts = urlsplit(row.url)
    return (parts.hostname, parts.path) == ("127.0.0.1", _HOOK)


def _revive(row: Channel, url: str) -> None:
    """Give the channel the receiver's port of now, and enable it if it was the receiver that was missing."""
    if row.url != url:
        channels.change_address(row, url)
    if not row.enabled and row.disabled_why == channels.disabled_by(_ABSENT):
        channels.enable(row)
