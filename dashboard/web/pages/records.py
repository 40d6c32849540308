"""The record lens: the fate of the record at one offset of a partition."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from dashboard.history import record_lens
from dashboard.history.record_lens import CannotLook, RecordLens
from dashboard.models import AuditEntry, PartitionRecord
from dashboard.runtime import visibility
from dashboard.system import access, audit
from dashboard.web import addresses
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import action_view, forbidden_page, of_known_cluster, render_page, signed_in
from dashboard.web.routes import MOST_HITS, Hit, PageRoute
from fenceline.facts import TopicPartition
from fenceline.text import explain_fate, explain_readers, explain_sequence

#: A record's place, such as `payments-3@48211`.
_PLACE = re.compile(r"(.{1,249})-([0-9]{1,9})@([0-9]{1,19})")
_NOT_AN_OFFSET = "“{}” is not an offset: write a number from 0 to 9223372036854775807."


@signed_in
@of_known_cluster
def record_page(request: HttpRequest, cluster: str, topic: str, partition: int) -> HttpResponse:
    """Show the record at `offset`, without its key and value."""
    where = TopicPartition(topic, partition)
    return _page(request, cluster, where, request.GET.get("offset", ""), with_payload=False)


@action_view
@of_known_cluster
def show_payload(request: HttpRequest, cluster: str, topic: str, partition: int) -> HttpResponse:
    """Show the record at `offset` with its key and value; write an audit row about that."""
    if refused := access.missing_role(access.actor_of(request, "page"), access.PAYLOADS, cluster):
        return forbidden_page(request, refused)
    where = TopicPartition(topic, partition)
    return _page(request, cluster, where, request.POST.get("offset", ""), with_payload=True)


@action_view
@of_known_cluster
def find_by_key(request: HttpRequest, cluster: str, topic: str, partition: int) -> HttpResponse:
    """Redirect to the newest record with the posted key; write an audit row about reading keys."""
    actor = access.actor_of(request, "page")
    if refused := access.missing_role(actor, access.PAYLOADS, cluster):
        return forbidden_page(request, refused)
    where, name = TopicPartition(topic, partition), f"{topic}-{partition}"
    hidden = access.payload_refusal(actor, cluster)
    try:
        if hidden:
            raise CannotLook(hidden, 422)
        audit.record_change(AuditEntry.Event.PAYLOAD_SHOWN, audit.AuditedSubject("record", None, name))
        offset = record_lens.find_record(cluster, where, request.POST.get("key", ""))
    except CannotLook as problem:
        wrong = {"problem": str(problem), "status": problem.status}
        context = {"cluster": cluster, "where": where, "name": name, "asked": "", "hidden": hidden, **wrong}
        return render_page(request, "partitions/record", lambda: context)
    return HttpResponseRedirect(addresses.record_url(cluster, topic, partition, offset), status=303)


def _page(
    request: HttpRequest, cluster: str, where: TopicPartition, asked: str, *, with_payload: bool
) -> HttpResponse:
    def read() -> Mapping[str, Any]:
        return _context(request, cluster, where, asked, with_payload=with_payload)

    # The leader is asked each time: a browser's copy may be old.
    return render_page(request, "partitions/record", read, depends_on=now_ms(request))


def _context(
    request: HttpRequest, cluster: str, where: TopicPartition, asked: str, *, with_payload: bool
) -> Mapping[str, Any]:
    hidden = access.payload_refusal(access.actor_of(request, "page"), cluster)
    context = {
        "cluster": cluster,
        "where": where,
        "name": f"{where.topic}-{where.partition}",
        "asked": asked[:40],
        "hidden": hidden,
    }
    if not asked:
        return context
    try:
        lens = record_lens.look_at_record(cluster, where, _offset(asked))
    except CannotLook as problem:
        return {**context, "problem": str(problem), "status": problem.status}
    return {
        **context,
        "lens": lens,
        "fate": explain_fate(lens.look),
        "readers": explain_readers(lens.look),
        "sequence": explain_sequence(lens.look),
        "payload": _payload(lens) if with_payload and not hidden else None,
    }


def _offset(asked: str) -> int:
    digits = asked.strip().replace(",", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise CannotLook(_NOT_AN_OFFSET.format(asked[:40]), 422)
    if int(digits) > record_lens.LARGEST_OFFSET:
        raise CannotLook(_NOT_AN_OFFSET.format(asked[:40]), 422)
    return int(digits)


def _payload(lens: RecordLens) -> Mapping[str, str | None] | None:
    """Return key and value as text, and write the audit row; None without a record."""
    if lens.record is None:
        return None
    name = f"{lens.where.topic}-{lens.where.partition}@{lens.look.offset}"
    audit.record_change(AuditEntry.Event.PAYLOAD_SHOWN, audit.AuditedSubject("record", None, name))
    return {part: record_lens.shown_payload(getattr(lens.record, part)) for part in ("key", "value")}


def _search(cluster: str, asked: str) -> Iterable[Hit]:
    place = _PLACE.fullmatch(asked)
    if place is None:
        return
    topic, number, offset = place[1], int(place[2]), place[3]
    rows = visibility.rows_in(PartitionRecord, cluster).filter(topic=topic, partition=number)
    rows = rows.order_by("cluster__name")
    for of in rows.values_list("cluster__name", flat=True)[:MOST_HITS]:
        yield Hit(asked, addresses.record_url(of, topic, number, offset), of)


ROUTES = (
    PageRoute(
        "record",
        "partitions/<str:cluster>/<str:topic>/<int:partition>/record",
        record_page,
        parent="partition",
        plural="records",
        search=_search,
        as_of_now="The record is as its leader has it now.",
    ),
    PageRoute(
        "record-by-key", "partitions/<str:cluster>/<str:topic>/<int:partition>/record/key", find_by_key
    ),
    PageRoute("payload", "partitions/<str:cluster>/<str:topic>/<int:partition>/record/payload", show_payload),
)
