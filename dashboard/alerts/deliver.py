"""Send due messages to channels, a few at once; test and check channels, send a message again.

A receiver can occupy one thread at most, for at most `[alerts] timeout_s`, because a channel is sent one
message at a time. Waiting messages are rows, not in memory: a delivery is a row before it is sent, so the
death of a process loses nothing. A worker claims it by compare-and-set for longer than a try can take.
Another worker takes an outdated claim over with a new one, and only the newest claim may write. So any number
of workers may run and be killed: an interrupted message is sent once more, with the same `webhook-id`, by
which its receiver recognises it.

Among the messages of one group, in one channel, the oldest is sent first: *resolved* never overtakes
*firing*.
"""

import logging
import random
import secrets
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, close_old_connections, connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from dashboard.alerts import apprise_channels, senders, ssrf
from dashboard.alerts.senders import SendOutcome
from dashboard.models import Channel, Cluster, Delivery
from dashboard.runtime import notify
from dashboard.runtime.database_errors import log_line
from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, Event
from fenceline.alerts import payload, redact
from fenceline.alerts.engine import Alerting

log = logging.getLogger(__name__)

#: Seconds that a claim outlasts its try, to write the outcome.
GRACE_S = 5.0
#: The first and the longest pause before another try, and the number of tries that a row keeps.
_FIRST_S, _LONGEST_S, _TRIES_KEPT = 1.0, 300.0, 10
_ALERT, _TEST = Delivery.Origin.ALERT, Delivery.Origin.TEST
#: Milliseconds for which an Alertmanager shows a test as firing.
_TEST_LIVES_MS = 60_000
_KINDS = {kind.value for kind in Channel.Kind}
#: Maximum due rows to search for one that may start: several may belong to one channel.
_LOOKED_AT = 50
_WRITE_AGAIN_S = 0.2
#: The columns that a message keeps when it is sent again.
_SENT = ("cluster", "message_id", "group_key", "reason", "payload", "held")
_REMEDY = "Enable it, then send the message again."


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to send a delivery once and to write its outcome: both rows as they were at the claim."""

    delivery: Delivery
    channel: Channel
    #: The claim's number, and its instant by the database's clock.
    number: int
    now: datetime


def due_deliveries(busy: Iterable[int] = ()) -> QuerySet[Delivery]:
    """Return the due deliveries, the longest waiting first, except for channels in `busy`."""
    older = Delivery.objects.filter(
        channel=OuterRef("channel"),
        group_key=OuterRef("group_key"),
        pk__lt=OuterRef("pk"),
        origin=_ALERT,
        ended_at=None,
    )
    rows = _claimable().exclude(channel__in=list(busy))
    return rows.filter(~Q(origin=_ALERT) | ~Exists(older)).order_by("next_at", "pk")


def _claimable() -> QuerySet[Delivery]:
    unclaimed = Q(claimed_until=None) | Q(claimed_until__lte=Now())
    return Delivery.objects.filter(unclaimed, ended_at=None, next_at__lte=Now())


def claim(pk: int, timeout_s: float) -> Claim | None:
    """Claim a delivery for `timeout_s`; return None if it is another worker's, not due, or ended."""
    taken = _claimable().filter(pk=pk)
    with transaction.atomic():
        if not taken.update(
            claim=F("claim") + 1, claimed_until=claim_expiry(timeout_s), attempts=F("attempts") + 1
        ):
            return None
        return current_claim(pk)


def claim_expiry(timeout_s: float) -> CombinedExpression:
    """Return the end of a new claim, by the database's clock."""
    return Now() + timedelta(seconds=timeout_s + GRACE_S)


def current_claim(pk: int) -> Claim:
    """Return the claim that was just made on a delivery."""
    row = Delivery.objects.select_related("channel").annotate(now=Now()).get(pk=pk)
    return Claim(row, row.channel, row.claim, row.now)


def finish_delivery(claim: Claim, outcome: SendOutcome, limits: Alerting) -> None:
    """Write the outcome of a try, and its effect on the channel, unless the claim is outdated."""
    row = claim.delivery
    claimed = Delivery.objects.filter(pk=row.pk, claim=claim.number, ended_at=None)
    fields: dict[str, Any] = {"claimed_until": None, "error": outcome.error}
    if outcome.tried:
        fields["tries"] = [*row.tries, outcome.tried][-_TRIES_KEPT:]
    wait_s = _wait_s(claim, outcome, limits)
    if outcome.delivered:
        fields |= {"state": Delivery.State.DELIVERED, "ended_at": Now()}
    elif wait_s is None:
        fields |= {"state": Delivery.State.FAILED, "ended_at": Now(), "error": _last_words(row, outcome)}
    else:
        fields |= {"next_at": Now() + timedelta(seconds=wait_s)}
    with transaction.atomic():
        if claimed.update(**fields) and (outcome.delivered or wait_s is None):
            _count(claim, outcome, limits)


def _wait_s(claim: Claim, outcome: SendOutcome, limits: Alerting) -> float | None:
    """Return the pause before the next try; None if there is no next try."""
    row = claim.delivery
    left_s = limits.retry_for_s - (claim.now - row.created_at).total_seconds()
    if not outcome.retry or row.origin == _TEST or left_s <= 0:
        return None
    return pause_s(row.attempts, outcome.retry_after_s, left_s)


def pause_s(attempts: int, retry_after_s: float | None, left_s: float) -> float:
    """Return the pause after a number of tries: doubled each time, with jitter, up to five minutes.

    A receiver may ask for a longer pause. It never exceeds `left_s`, the rest of `[alerts] retry_for_s`, when
    the last try is made.
    """
    longest = min(_LONGEST_S, _FIRST_S * 2.0 ** min(attempts - 1, 30))
    jittered = random.uniform(longest / 2, longest)  # noqa: S311
    return min(left_s, max(jittered, retry_after_s or 0.0))


def _last_words(row: Delivery, outcome: SendOutcome) -> str:
    if not outcome.retry or row.origin == _TEST:
        return outcome.error
    return f"{outcome.error} Given up after {row.attempts} tries: send it again once that is repaired."


def _count(claim: Claim, outcome: SendOutcome, limits: Alerting) -> None:
    """Count consecutive failures of a channel, and disable it after too many; manual sends do not count."""
    rows = Channel.objects.filter(pk=claim.channel.pk)
    if outcome.delivered:
        rows.filter(failures__gt=0).update(failures=0)
    elif claim.delivery.origin == _ALERT and outcome.tried:
        rows.update(failures=F("failures") + 1)
        why = (
            f"{limits.disable_after} messages in a row were not taken, the last one with: {outcome.error}"
            " Mend that, send a test, then enable the channel."
        )
        many = rows.filter(enabled=True, failures__gte=limits.disable_after)
        if limits.disable_after and many.update(enabled=False, disabled_at=Now(), disabled_why=why):
            subject = AuditedSubject("channel", claim.channel.pk, claim.channel.name)
            audit.record_change(Event.CHANNEL_DISABLED, subject, {"enabled": (True, False)})


class CannotSend(ValueError):
    """A channel that cannot be used for sending; the text has the problem and the remedy."""


def check_channel(kind: str, url: str, secret: str) -> None:
    """Check a channel's address and secret; raises `CannotSend`.

    It resolves the host of a web address, which may take seconds. A host without an address now is no error.
    """
    try:
        if kind not in _KINDS:
            raise CannotSend(
                f"There is no kind “{redact.clean_line(kind, 20)}”: take {', '.join(sorted(_KINDS))}."
            )
        if kind == Channel.Kind.APPRISE:
            apprise_channels.check_address(url)
        else:
            _guard().allowed_addresses(ssrf.parse_target(url))
    except ssrf.Unresolved as error:
        log.info("a channel's host has no address now: %s", error)
    except (ssrf.TargetRefused, apprise_channels.Unsupported) as error:
        raise CannotSend(str(error)) from error
    if kind != Channel.Kind.WEBHOOK:
        if secret:
            raise CannotSend(f"A channel of kind {kind} signs nothing: leave its secret empty.")
        return
    try:
        senders.secret_key(secret)
    except senders.BadSecret as error:
        raise CannotSend(str(error)) from error


def _guard() -> ssrf.TargetGuard:
    return ssrf.TargetGuard(_limits().allow_private)


def _limits() -> Alerting:
    limits: Alerting = settings.FENCELINE.alerts
    return limits


def send_test(channel: Channel) -> Delivery:
    """Send a message marked as a test once, and return its ended delivery.

    It takes up to `[alerts] timeout_s`: call it outside of a transaction. A disabled channel can be tested; a
    failed test does not count as a failure of its channel.
    """
    limits, now_ms = _limits(), time.time_ns() // 1_000_000
    sample = payload.sample_message(channel.name, external_url=limits.external_url, now_ms=now_ms)
    row = Delivery.objects.create(
        channel=channel,
        origin=Delivery.Origin.TEST,
        message_id=f"msg_{secrets.token_hex(16)}",
        reason=payload.SendReason.TEST.value,
        payload=payload.channel_payload(channel.kind, sample, now_ms=now_ms, lives_ms=_TEST_LIVES_MS),
        next_at=Now(),
        # Claimed from the start, so that no worker takes it.
        claimed_until=claim_expiry(limits.timeout_s),
        claim=1,
        attempts=1,
    )
    send_delivery(current_claim(row.pk))
    row.refresh_from_db()
    return row


def send_again(delivery: Delivery) -> Delivery:
    """Send a message once more as a new delivery with the same id, and return it.

    Raises `CannotSend` while its channel is disabled or the message is still being sent.
    """
    channel = delivery.channel
    if not channel.enabled:
        raise CannotSend(f"The channel {channel.name} is disabled: enable it, then send the message again.")
    if delivery.state == Delivery.State.PENDING:
        raise CannotSend("This message is still being sent: wait until it is delivered or has failed.")
    row = Delivery.objects.create(
        **{name: getattr(delivery, name) for name in _SENT},
        channel=channel,
        origin=Delivery.Origin.AGAIN,
        next_at=Now(),
    )
    row.refresh_from_db()
    return row


def enable_channel(channel: Channel) -> None:
    """Enable a channel again, and reset its failures."""
    rows = Channel.objects.filter(pk=channel.pk)
    rows.update(enabled=True, failures=0, disabled_at=None, disabled_why="")
    channel.refresh_from_db()


def send_delivery(claimed: Claim) -> None:
    """Send a claimed delivery once and save the outcome, unless the claim is outdated by then."""
    row, channel = claimed.delivery, claimed.channel
    if not channel.enabled and row.origin != Delivery.Origin.TEST:
        outcome = senders.SendOutcome(False, error=f"Not sent: the channel is disabled. {_REMEDY}")
    else:
        outcome = senders.send_once(_message(claimed), _guard())
    level = logging.INFO if outcome.delivered else logging.WARNING
    result = outcome.error or "delivered"
    log.log(level, "channel %s, %s, try %d: %s", channel.name, row.message_id, row.attempts, result)
    _write(claimed, outcome)
    notify_pages()


def _message(claimed: Claim) -> senders.OutgoingMessage:
    row, channel = claimed.delivery, claimed.channel
    return senders.OutgoingMessage(
        kind=channel.kind,
        url=channel.url,
        secrets=tuple(secret for secret in (channel.secret, channel.old_secret) if secret),
        message_id=row.message_id,
        group_key=row.group_key,
        payload=row.payload,
        timeout_s=_limits().timeout_s,
    )


def _write(claimed: Claim, outcome: senders.SendOutcome) -> None:
    """Write the outcome of a try, with retries: no other worker sends the message during the claim."""
    end = time.monotonic() + GRACE_S
    while True:
        try:
            return finish_delivery(claimed, outcome, _limits())
        except DatabaseError:
            if connection.in_atomic_block or time.monotonic() > end:
                raise
            connection.close()
            time.sleep(_WRITE_AGAIN_S)


class Sender:
    """Sends due deliveries in a few threads, one message at a time to each channel."""

    def __init__(self, threads: int = 8) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="deliver")
        #: The channel of each running delivery.
        self._busy: dict[Future[None], int] = {}

    def start_due(self) -> int:
        """Start due deliveries while threads are free; return the number of running ones."""
        self._busy = {future: channel for future, channel in self._busy.items() if not future.done()}
        # First a cheap question, because the queue is mostly empty.
        if len(self._busy) < self._threads and _claimable().exists():
            rows = list(due_deliveries(self._busy.values()).values_list("pk", "channel_id")[:_LOOKED_AT])
            # The longest-waiting delivery of each channel.
            for channel, pk in {channel: pk for pk, channel in reversed(rows)}.items():
                if len(self._busy) < self._threads:
                    self._busy[self._pool.submit(_deliver, pk)] = channel
        return len(self._busy)

    def close(self) -> None:
        """Wait for all running deliveries, each at most `[alerts] timeout_s`; start nothing more."""
        self._pool.shutdown(cancel_futures=True)


def _deliver(pk: int) -> None:
    """Send one delivery, in a thread of the pool: an error ends this try, never the thread."""
    close_old_connections()
    try:
        claimed = claim(pk, _limits().timeout_s)
        if claimed is not None:
            send_delivery(claimed)
    except DatabaseError as error:
        log.error("delivery %d: trying again soon: %s", pk, log_line(error))
        connection.close()
    except Exception:
        log.exception("delivery %d: an error of ours", pk)


def notify_pages() -> None:
    """Notify every cluster's open pages that alerting changed; call it after the commit."""
    for name, rev in Cluster.objects.filter(configured=True).values_list("name", "rev"):
        notify.notify_change(name, "alerts", rev)
