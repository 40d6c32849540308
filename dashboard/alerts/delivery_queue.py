"""The queue of deliveries: claim a delivery, and record its outcome.

A delivery is a row before it is sent, so the death of a process loses nothing. A worker claims it by
compare-and-set for longer than a try can take. Another worker takes an outdated claim over with a new one,
and only the newest claim may write. So any number of workers may run and be killed: an interrupted message is
sent once more, with the same `webhook-id`, by which its receiver recognises it.

Among the messages of one group, in one channel, the oldest is sent first: *resolved* never overtakes
*firing*.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from dashboard.alerts.senders import SendOutcome
from dashboard.models import Channel, Delivery
from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, Event
from fenceline.alerts.limits import Alerting

#: Seconds that a claim outlasts its try, to write the outcome.
GRACE_S = 5.0
#: The first and the longest pause before another try, and the number of tries that a row keeps.
_FIRST_S, _LONGEST_S, _TRIES_KEPT = 1.0, 300.0, 10
_ALERT, _TEST = Delivery.Origin.ALERT, Delivery.Origin.TEST


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


def is_any_due() -> bool:
    """Whether any delivery is due: a cheap question for a queue that is mostly empty."""
    return _claimable().exists()


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
