"""The channel of the sandbox's demo: `make up` runs a webhook receiver, and this channel sends to it. It is
added once per database, according to the audit log: a channel that a user has deleted or renamed is not
restored. It is disabled while its receiver is not running.
"""

from urllib.parse import urljoin, urlsplit

from dashboard.alerts import channels
from dashboard.alerts.demo_receiver import HOOK
from dashboard.models import AuditEntry, Channel

NAME = "demo-receiver"
#: The name of its creator: no username has spaces or parentheses.
_ADDED_BY = "make up (demo)"
_ABSENT = "make up, which runs no receiver now"
#: In seconds: a demo does not wait for further alerts.
_WAITS = {"group_wait_s": 1, "group_interval_s": 5}


def sync_channel(receiver: str, secret: str) -> None:
    """Make the channel send to the receiver whose page is at `receiver`, "" without one.

    Raises `validation.Unfit` if `[alerts] allow_private` does not name the receiver.
    """
    row = Channel.objects.filter(created_by=_ADDED_BY).order_by("pk").first()
    if row is None:
        if receiver and not _was_added():
            _add(urljoin(receiver, HOOK), secret)
    elif not _sends_to_receiver(row):
        # A user has given it another address: leave it alone.
        return
    elif not receiver:
        channels.disable(row, by=_ABSENT)
    else:
        _revive(row, urljoin(receiver, HOOK))


def _was_added() -> bool:
    return AuditEntry.objects.filter(
        event=AuditEntry.Event.CHANNEL_CREATED, subject_kind="channel", subject_name=NAME
    ).exists()


def _add(url: str, secret: str) -> None:
    draft = channels.ChannelDraft(NAME, Channel.Kind.WEBHOOK, url, waits=dict(_WAITS))
    channels.add(draft, by=_ADDED_BY, secret=secret)


def _sends_to_receiver(row: Channel) -> bool:
    """Whether a channel has the address of a demo receiver, at any port."""
    parts = urlsplit(row.url)
    return (parts.hostname, parts.path) == ("127.0.0.1", HOOK)


def _revive(row: Channel, url: str) -> None:
    """Update the channel to the receiver's present port, and enable it if only the receiver was missing."""
    if row.url != url:
        channels.change_address(row, url)
    if not row.enabled and row.disabled_why == channels.disabled_by(_ABSENT):
        channels.enable(row)
