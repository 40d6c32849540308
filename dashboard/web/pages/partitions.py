"""Watched partitions: the list, each partition's own page, and requests to all of its replicas."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from kombu.exceptions import OperationalError

from dashboard.celery import app
from dashboard.evaluation import finding_queries
from dashboard.groups import queries as group_queries
from dashboard.labels.status import NEXT_STEPS, VERDICT_LABELS
from dashboard.models import FindingRecord, GroupOffset, PartitionRecord, PinRecord, Query, ReplicaLook
from dashboard.partitions import queries as partition_queries
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import PARTITIONS
from dashboard.streaming import lag
from dashboard.streaming.lag import PartitionLag
from dashboard.system import access, owners
from dashboard.web import action_buttons, addresses, page_context
from dashboard.web.charts.series_figures import series_context, subject_history
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import ChipRow, Filters, Heading, plain_labels
from dashboard.web.headlines.detail import BlockedConsumer, partition_headline
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import (
    CLUSTER,
    OWNER,
    action_view,
    forbidden_page,
    list_view,
    of_known_cluster,
    page_view,
)
from dashboard.web.routes import MOST_HITS, Hit, PageRoute
from fenceline.decode.typed import read_json
from fenceline.formatting import upper_first
from fenceline.kafka.applications import application_of
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import WORST_VERDICTS, PartitionVerdict, ProducerState, VerdictReason
from fenceline.plans.plan import Act
from fenceline.series.points import PARTITION
from fenceline.text import explain_break, explain_progress, explain_sequences, verdict_reason

#: Maximum groups on a partition's page, waiting groups first.
_MOST_READERS = 100
#: A page warns that no worker seems to run after this long without an answer.
_UNANSWERED_MS = 15_000
#: A request to the replicas expires after this long.
_ASK_WITHIN_S = 30
#: Values of the filter by verdict, in the order of its chips.
_VERDICTS = tuple(verdict.value for verdict in WORST_VERDICTS)
_HEADINGS: Sequence[Heading] = (
    ("Partition", "name", "col-name", "asc"),
    ("Verdict", "worst", "col-verdict", "asc"),
    ("Finding", "", "col-finding", ""),
    (CLUSTER, "", "col-cluster", ""),
    ("Log start", "", "col-start number", ""),
    ("LSO", "", "col-lso number", ""),
    ("High watermark", "", "col-high number", ""),
    ("Uncommitted", "held", "col-held number", "desc"),
    ("Blocked for", "age", "col-age number", "asc"),
    ("Blocked by", "", "col-blocker", ""),
    ("Application", "", "col-application", ""),
    (OWNER, "", "col-owner", ""),
    ("Leader", "", "col-leader number", ""),
)


class PartitionListQuery(list_forms.NumberedList, partition_queries.SortedPartitions):
    """The query string of the list."""


@action_view
@of_known_cluster
def ask_replicas(request: HttpRequest, cluster: str, topic: str, partition: int) -> HttpResponse:
    """Ask every replica of a partition for its producers, then show its page again."""
    if refused := access.permission_refusal(access.actor_of(request, "page"), access.ASK_REPLICAS, cluster):
        return forbidden_page(request, refused)
    if partition_queries.find_partition(cluster, topic, partition) is None:
        raise Http404("Unknown partition.")
    asked = str(now_ms(request))
    try:
        app.send_task(
            "collectors.look_at_replicas",
            (cluster, topic, partition),
            queue="default",
            expires=_ASK_WITHIN_S,
            retry=False,
        )
    except OperationalError:
        asked = "failed"
    where = addresses.partition_url(cluster, topic, partition)
    return HttpResponseRedirect(f"{where}?asked={asked}#replicas", status=303)


@list_view("partitions/list", PartitionListQuery, _HEADINGS)
def partition_list(request: HttpRequest, wanted: PartitionListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    page = partition_queries.partition_page(wanted, page=wanted.page, size=wanted.size)
    counts = partition_queries.verdict_counts(frame.cluster)
    open_in = partition_queries.partition_pins(
        (row.cluster_id, row.topic, row.partition) for row in page.items
    )
    findings = frame.worst_findings("partition")
    select = action_buttons.row_selection(request, Act.ABORT_MARKER, "Abort hanging transactions…")
    hidden = 0 if wanted.internal else counts.hidden_count("")
    numbers = {verdict: counts.count_of(verdict, internal=wanted.internal) for verdict in _VERDICTS}
    rows = [
        _row(
            row,
            open_in.get((row.cluster_id, row.topic, row.partition), ()),
            findings,
            may_act=select is not None,
            at_ms=now_ms(request),
        )
        for row in page.items
    ]
    return {
        "page": page,
        "rows": rows,
        "select": select if any(row["can_select"] for row in rows) else None,
        "filters": _filters(
            request, wanted, {partition_queries.BLOCKED: frame.blocked_number, **numbers}, hidden
        ),
    }


def _filters(
    request: HttpRequest, wanted: PartitionListQuery, verdicts: Mapping[str, int], hidden: int
) -> Sequence[ChipRow]:
    """Return the chips of verdicts, and the chip that shows or hides internal topics."""
    filters = Filters(request.GET, wanted)
    words = "internal topics" if wanted.internal else f"show {hidden:,} internal"
    internal = filters.row("internal", ["true"], plain_labels({"true": words}), every="")
    rows = [filters.row("verdict", verdicts, VERDICT_LABELS)]
    return [*rows, internal] if wanted.internal or hidden else rows


def _row(
    row: PartitionRecord,
    pins: Sequence[PinRecord],
    findings: Mapping[tuple[int, str], FindingRecord],
    *,
    may_act: bool,
    at_ms: int,
) -> Mapping[str, Any]:
    """Return one partition and its open transactions, the one at the LSO first."""
    blocker = pins[0].transactional_id if pins else ""
    return {
        "of": row,
        "pins": pins,
        "unstable": partition_queries.unstable_offsets(row),
        "finding": findings.get((row.cluster_id, str(row))),
        "owner": owners.find_owner(str(row), row.topic),
        # The application that blocks it; "" without one or if its name is unknown.
        "application": application_of(blocker).application if blocker else "",
        "can_select": may_act and row.verdict == PartitionVerdict.HANGING,
        "verdict": _shown_verdict(row, at_ms),
    }


def _shown_verdict(row: PartitionRecord, at_ms: int) -> str:
    """Return its verdict, or "blocked" if a transaction within its limit blocks it."""
    is_open = row.verdict == PartitionVerdict.OPEN and partition_queries.is_blocked(row, at_ms)
    return partition_queries.BLOCKED if is_open else row.verdict


def _moving(request: HttpRequest) -> int:
    # A late answer, and the replicas' answers, change the page without a new revision.
    return now_ms(request) // 1_000 if "asked" in request.GET else 0


@page_view("partitions/detail", _moving)
@of_known_cluster
def partition_detail(request: HttpRequest, cluster: str, topic: str, partition: int) -> Mapping[str, Any]:
    """Show what blocks one partition, its consumers and its producers."""
    row = partition_queries.find_partition(cluster, topic, partition)
    clipped = topic if len(topic) <= 249 else f"{topic[:249]}…"
    if row is None:
        return {"row": None, "cluster": cluster, "name": f"{clipped}-{partition}", "status": 404}
    name = (row.cluster_id, row.topic, row.partition)
    findings = finding_queries.open_findings(cluster, f"partition:{row}")
    readers = group_queries.partition_readers(row.cluster_id, topic, partition, most=_MOST_READERS + 1)
    queries = lag.partition_readers(row, most=_MOST_READERS)
    pins = partition_queries.partition_pins([name]).get(name, ())
    return {
        "row": row,
        "cluster": cluster,
        "name": str(row),
        "verdict": _shown_verdict(row, now_ms(request)),
        "headline": partition_headline(row, pins, _blocked_consumers(readers, queries)),
        "hidden": access.payload_refusal(access.actor_of(request, "page"), cluster),
        "happened": subject_history(request, cluster, f"partition:{row}"),
        "findings": findings,
        "open": [_open(request, cluster, pin) for pin in pins],
        "owner": owners.find_owner(str(row), row.topic),
        "readers": readers[:_MOST_READERS],
        "more_readers": len(readers) > _MOST_READERS,
        "queries": queries,
        "unstable": partition_queries.unstable_offsets(row),
        "waiting": sum(reader.waiting == Waiting.PROBABLY for reader in readers),
        **series_context(request, row.cluster_id, PARTITION, str(row)),
        **_replicas(request, row),
    }


def _blocked_consumers(
    readers: Sequence[GroupOffset], queries: Sequence[tuple[Query, PartitionLag]]
) -> Sequence[BlockedConsumer]:
    """Return the groups and queries that are at a blocked LSO."""
    groups = [
        (reader.group.group_id, reader.lag_hw) for reader in readers if reader.waiting == Waiting.PROBABLY
    ]
    streams = [(str(query), part.lag_hw) for query, part in queries if part.waiting_state == Waiting.PROBABLY]
    return [*groups, *streams]


def _open(request: HttpRequest, cluster: str, pin: PinRecord) -> Mapping[str, Any]:
    why = verdict_reason(VerdictReason(pin.ground))
    return {
        "pin": pin,
        "why": f"{upper_first(why)}.",
        "next_step": NEXT_STEPS[pin.ground],
        "owner": owners.of_transaction(pin.transactional_id),
        "offers": action_buttons.of_pin(request, cluster, pin),
    }


def _replicas(request: HttpRequest, row: PartitionRecord) -> Mapping[str, Any]:
    answers = partition_queries.replica_answers(row)
    value = request.GET.get("asked", "")
    at_ms = int(value) if value.isascii() and value.isdigit() and len(value) <= 15 else 0
    passed_ms = now_ms(request) - at_ms
    answered = {answer.broker for answer in answers if answer.seen_ms >= at_ms}
    waiting = at_ms > 0 and not (answered and answered >= set(row.replicas))
    return {
        "answers": [_shown_answer(answer) for answer in answers],
        "differ": _differ(answers),
        "cannot_ask": access.permission_refusal(
            access.actor_of(request, "page"), access.ASK_REPLICAS, row.cluster.name
        ),
        "question": "failed" if value == "failed" else _stands(waiting, passed_ms),
    }


def _shown_answer(look: ReplicaLook) -> Mapping[str, Any]:
    before = {producer["producer_id"]: producer for producer in look.producers_before}
    writers = partition_queries.batch_writers(look)
    here = {producer["producer_id"] for producer in look.producers}
    return {
        "look": look,
        "writers": writers,
        "sequences": explain_sequences(writers) if writers else "",
        "breaks": [explain_break(sequence_break) for sequence_break in writers.breaks] if writers else [],
        "producers": [
            (producer, _progress(look, before.get(producer["producer_id"]), producer))
            for producer in look.producers
        ],
        "gone": [] if look.error else [producer_id for producer_id in before if producer_id not in here],
    }


def _progress(look: ReplicaLook, before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str:
    if look.before_ms is None:
        return ""
    read = partial(read_json, ProducerState)
    return explain_progress(read(before) if before is not None else None, read(now))


def _stands(waiting: bool, passed_ms: int) -> str:
    """Return the status of a request: "asking", "unanswered", or "" if no answer is awaited."""
    if not waiting:
        return ""
    return "asking" if passed_ms <= _UNANSWERED_MS else "unanswered"


def _differ(answers: Sequence[ReplicaLook]) -> bool:
    """Return whether replicas report different open transactions; a follower may lag behind its leader."""
    open_sets = {
        frozenset((producer["producer_id"], producer["start_offset"]) for producer in answer.producers)
        for answer in answers
        if not answer.error
    }
    return len(open_sets) > 1


def _search(cluster: str, asked: str) -> Iterable[Hit]:
    topic, dash, number = asked.rpartition("-")
    wanted = Q(topic__icontains=asked)
    if dash and number.isascii() and number.isdecimal() and len(number) < 9:
        wanted |= Q(topic__iexact=topic, partition=int(number))
    rows = visibility.rows_in(PartitionRecord, cluster).filter(wanted).order_by("topic", "partition")
    for name, of, index in rows.values_list("topic", "cluster__name", "partition")[:MOST_HITS]:
        yield Hit(f"{name}-{index}", addresses.partition_url(of, name, index), of)


ROUTES = (
    PageRoute(
        "partitions",
        "partitions",
        partition_list,
        search=_search,
        key="p",
        heading="Monitor",
        shows=PARTITIONS,
        searched="topics",
        has_files=True,
        as_of_now="The history of offsets and verdicts is not kept.",
    ),
    PageRoute(
        "partition",
        "partitions/<str:cluster>/<str:topic>/<int:partition>",
        partition_detail,
        parent="partitions",
        as_of_now="Its offsets over time are of the range that you chose.",
    ),
    PageRoute("ask-replicas", "partitions/<str:cluster>/<str:topic>/<int:partition>/replicas", ask_replicas),
)
