"""What may be offered to do about something on a page: the acts, the words of their buttons, why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.http import HttpRequest

from dashboard import access, chains, micro_batches, streaming
from dashboard.access import Actor
from dashboard.models import FindingRecord, PinRecord, Query, SinkDecision, Transaction
from fenceline.chain import RECOVER_AND_ABORT, RECOVER_AND_COMMIT
from fenceline.evidence import because
from fenceline.facts import State
from fenceline.partitions import Ground, Verdict
from fenceline.plans.plan import Act
from fenceline.spark import Decided

#: Of an id that hangs in many partitions so many buttons are shown: its findings name the rest.
_MOST_MARKERS = 3
#: What rules find and an act may end, by the kind of their subject; the plan says whether it may.
_OF_RULES = {
    ("hanging", "partition"): (Act.ABORT_MARKER, "Abort hanging transaction…"),
    ("open_too_long", "transaction"): (Act.FENCE, "Fence producer…"),
    ("late", "transaction"): (Act.FENCE, "Fence producer…"),
}
#: A coordinator has decided, or nobody can tell: neither act is offered, and this is why.
_NEITHER = (Ground.STUCK_IN_PREPARE, Ground.MAY_BE_HIDDEN, Ground.UNSEEN, Ground.SEEN_ONCE)


@dataclass(frozen=True, slots=True)
class Offer:
    """A button that makes a plan; disabled where `why_not` says why."""

    act: Act
    cluster: str
    #: As `dashboard.actions.planning.plan` takes it.
    subject: str
    words: str
    why_not: str = ""


def actor(request: HttpRequest) -> Actor:
    """Return who looks at a page; asked once for each request."""
    found: Actor = request.__dict__.setdefault("acting_actor", access.actor_of(request, "page"))
    return found


def of_transaction(request: HttpRequest, row: Transaction, pins: Sequence[PinRecord]) -> Sequence[Offer]:
    """Return what may be done about a transactional id and what it holds open; nothing in Prepare*."""
    return [_asked(request, each) for each in _transaction(row, pins)]


def of_pin(request: HttpRequest, cluster: str, pin: PinRecord) -> Sequence[Offer]:
    """Return what may be done about an open transaction in a partition."""
    subject = f"{pin.topic}-{pin.partition}@{pin.start_offset}"
    marker = Offer(Act.ABORT_MARKER, cluster, subject, "Abort hanging transaction…")
    if pin.verdict == Verdict.HANGING:
        return [_asked(request, marker)]
    if pin.ground in _NEITHER:
        why = because(Ground(pin.ground))
        return [Offer(marker.act, cluster, subject, marker.words, f"Not offered: {why}.")]
    if not pin.transactional_id:
        return []
    return [_asked(request, Offer(Act.FENCE, cluster, pin.transactional_id, "Fence producer…"))]


def of_decision(request: HttpRequest, query: Query, decision: SinkDecision) -> Sequence[Offer]:
    """Return what may be done about a batch whose sink has decided: finish what is prepared."""
    if decision.outcome or decision.decided != Decided.PREPARED:
        return []
    return [_asked(request, of_batch(Act.FINISH_BATCH, query, decision.batch_id))]


def of_open_batch(request: HttpRequest, query: Query, batch_id: int, recovery: str) -> Sequence[Offer]:
    """Return what mends a broken link of a batch's chain besides a restart, by the link's `recovery`."""
    act = {RECOVER_AND_COMMIT: Act.FINISH_BATCH, RECOVER_AND_ABORT: Act.ROLL_BACK_BATCH}.get(recovery)
    return [] if act is None else [_asked(request, of_batch(act, query, batch_id))]


def of_finding(request: HttpRequest, row: FindingRecord) -> Sequence[Offer]:
    """Return what may be done about what a rule found: nothing for most."""
    kind, _, name = row.subject.partition(":")
    if row.closed_at is not None:
        return []
    if (row.rule, kind) == ("batch_prepared", "query"):
        query = streaming.query(row.cluster.name, name)
        waiting = [] if query is None else micro_batches.open_decisions([query])
        return [offer for each in waiting[:1] for offer in of_decision(request, each.query, each)]
    act, words = _OF_RULES.get((row.rule, kind), (None, ""))
    return [] if act is None else [_asked(request, Offer(act, row.cluster.name, name, words))]


def of_batch(act: Act, query: Query, batch_id: int) -> Offer:
    """Return finish or roll back of one batch; who may is not asked."""
    verb = "Finish" if act is Act.FINISH_BATCH else "Roll back"
    subject = f"{query.ident}@{batch_id}"
    return Offer(act, query.cluster.name, subject, f"{verb} batch {batch_id:,}…")


def of_sink(cluster_id: int, transactional_id: str) -> Sequence[Offer]:
    """Return what ends a transaction of our sink: finish its prepared batch, else roll back the newest one.

    Who may is not asked. Nothing for an id of no query that is known.
    """
    written = micro_batches.written_for(cluster_id, transactional_id)
    if written is None:
        return []
    waiting = micro_batches.open_decisions([written.query])
    prepared = next((each.batch_id for each in waiting if each.batch_id == written.batch_id), None)
    if prepared is not None:
        return [of_batch(Act.FINISH_BATCH, written.query, prepared)]
    planned = written.query.planned
    return [] if planned is None else [of_batch(Act.ROLL_BACK_BATCH, written.query, planned)]


def asked(request: HttpRequest, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Return offers with the reason why whoever looks may not take them."""
    return [_asked(request, each) for each in offers]


def _asked(request: HttpRequest, offer: Offer) -> Offer:
    why_not = access.refusal(actor(request), access.OF_ACT[offer.act])
    return Offer(offer.act, offer.cluster, offer.subject, offer.words, why_not)


def _transaction(row: Transaction, pins: Sequence[PinRecord]) -> Iterator[Offer]:
    cluster = row.cluster.name
    hanging = [pin for pin in pins if pin.verdict == Verdict.HANGING]
    for pin in hanging[:_MOST_MARKERS]:
        name = f"{pin.topic}-{pin.partition}"
        words = f"Abort hanging transaction in {name}…"
        yield Offer(Act.ABORT_MARKER, cluster, f"{name}@{pin.start_offset}", words)
    if row.state != State.ONGOING:
        return
    if chains.owner_query(row.cluster_id, row.transactional_id) is None:
        yield Offer(Act.FENCE, cluster, row.transactional_id, "Fence producer…")
    else:
        yield from of_sink(row.cluster_id, row.transactional_id)
