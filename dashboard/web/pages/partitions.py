"""Every watched partition: the list, each one's own page, and the question to all of its replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from kombu.exceptions import OperationalError

from dashboard.celery import app
from dashboard.evaluation import finding_queries
from dashboard.groups import queries as group_queries
from dashboard.labels.status import NEXT_STEPS
from dashboard.models import FindingRecord, GroupOffset, PartitionRecord, PinRecord, Query, ReplicaLook
from dashboard.partitions import queries as partition_queries
from dashboard.streaming import lag
from dashboard.streaming.lag import PartitionLag
from dashboard.system import access, owners
from dashboard.web import action_buttons, addresses, page_context
from dashboard.web.action_buttons import Button
from dashboard.web.empty_state import why_empty
from dashboard.web.errors import forbidden_page
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.columns import Heading, table_columns
from dashboard.web.headlines.detail import BlockedConsumer
from dashboard.web.headlines.partition import partition_headline
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import action_view, render_page, signed_in
from dashboard.web.series.context import series_context
from dashboard.web.subject_history import subject_history
from fenceline.explanations import verdict_reason
from fenceline.facts import Severity
from fenceline.kafka.applications import application_of
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import WORST_VERDICTS, PartitionVerdict, VerdictReason
from fenceline.owners import Owner
from fenceline.plans.plan import Act
from fenceline.series.points import PARTITION

#: How many groups of a partition its page shows, those that wait first.
_MOST_READERS = 100
#: After so long without an answer a page warns that no worker seems to run.
_UNANSWERED_MS = 15_000
#: A question that nobody took up by then is not asked any more.
_ASK_WITHIN_S = 30
_LARGEST = 2**31
#: Words of the filter by verdict, in the order of its chips.
_VERDICTS = (partition_queries.PINNED, *(verdict.value for verdict in WORST_VERDICTS))
_CLUSTER, _OWNER = "Cluster", "Owner"
_HEADINGS: Sequence[Heading] = (
    ("Partition", "name", "col-name", "asc"),
    ("Verdict", "worst", "col-verdict", "asc"),
    ("Finding", "", "col-finding", ""),
    (_CLUSTER, "", "col-cluster", ""),
    ("Log start", "", "col-start number", ""),
    ("LSO", "", "col-lso number", ""),
    ("High watermark", "", "col-high number", ""),
    ("Uncommitted", "held", "col-held number", "desc"),
    ("Blocked for", "age", "col-age number", "asc"),
    ("Blocked by", "", "col-blocker", ""),
    ("Application", "", "col-application", ""),
    (_OWNER, "", "col-owner", ""),
    ("Leader", "", "col-leader number", ""),
)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition, and the transactions open in it, the one at the LSO first."""

    of: PartitionRecord
    pins: Sequence[PinRecord]
    #: Offsets behind its LSO, None where they were not seen.
    unstable: int | None
    finding: FindingRecord | None
    owner: Owner | None
    #: Whether an abort marker for what hangs in it may be planned.
    can_select: bool

    @property
    def application(self) -> str:
        """Return whose transaction blocks it, "" where none does or it is not known."""
        name = self.pins[0].transactional_id if self.pins else ""
        return application_of(name).application if name else ""


@dataclass(frozen=True, slots=True)
class Open:
    """One open transaction: whose it is, why this verdict, and what to do."""

    pin: PinRecord
    why: str
    next_step: str
    owner: Owner | None
    offers: Sequence[Button]


class PartitionListQuery(list_forms.NumberedList, partition_queries.SortedPartitions):
    """The query string of the list."""


@signed_in
def partition_list(request: HttpRequest) -> HttpResponse:
    """Show one page of the partitions that the query string asks for."""
    wanted = list_forms.read_request(request, PartitionListQuery)
    return render_page(request, "partitions/list", lambda: _list(request, wanted))


@signed_in
def partition_detail(request: HttpRequest, cluster: str, topic: str, partition: int) -> HttpResponse:
    """Show what blocks one partition, its consumers and its producers."""
    if not any(row.name == cluster for row in page_context.chrome_of(request).clusters):
        raise Http404(f"No cluster “{cluster}” is configured.")
    # Whether an answer is late changes without any revision, and so do answers of replicas.
    moving = now_ms(request) // 1_000 if "asked" in request.GET else 0
    return render_page(
        request, "partitions/detail", lambda: _detail(request, cluster, topic, partition), depends_on=moving
    )


@action_view
def ask_replicas(request: HttpRequest, cluster: str, topic: str, partition: int) -> HttpResponse:
    """Have every replica of a partition asked for its producers, and show its page again."""
    if refused := access.permission_refusal(access.actor_of(request, "page"), access.ASK_REPLICAS):
        return forbidden_page(request, refused)
    if partition_queries.find_partition(cluster, topic, partition) is None or not any(
        row.name == cluster for row in page_context.chrome_of(request).clusters
    ):
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


def _list(request: HttpRequest, wanted: PartitionListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    several = len(frame.clusters) > 1 and not frame.cluster
    page = partition_queries.partition_page(wanted, page=wanted.page, size=wanted.size)
    counts = partition_queries.verdict_counts(frame.cluster)
    open_in = partition_queries.partition_pins(
        (row.cluster_id, row.topic, row.partition) for row in page.items
    )
    shown = {_CLUSTER: several, _OWNER: frame.has_owners}
    headings = [each for each in _HEADINGS if shown.get(each[0], True)]
    findings = frame.worst_findings("partition")
    select = action_buttons.row_selection(request, Act.ABORT_MARKER, "Abort hanging transactions…")
    rows = [
        _row(row, open_in.get((row.cluster_id, row.topic, row.partition), ()), findings, select is not None)
        for row in page.items
    ]
    return {
        "wanted": wanted,
        "narrowed": wanted.narrowed,
        "page": page,
        "rows": rows,
        "select": select if any(row.can_select for row in rows) else None,
        "columns": table_columns(headings, wanted.sort, descending=wanted.descending),
        "verdicts": [(each, counts.count_of(each, internal=wanted.internal)) for each in _VERDICTS],
        "hidden": 0 if wanted.internal else counts.hidden_count(""),
        "hidden_pinned": 0 if wanted.internal else counts.hidden_count("pinned"),
        "sizes": list_forms.SIZES,
        "several": several,
        "empty": "" if page.items else why_empty(frame, narrowed=wanted.narrowed),
    }


def _row(
    row: PartitionRecord,
    pins: Sequence[PinRecord],
    findings: Mapping[tuple[int, str], FindingRecord],
    may_act: bool,
) -> PartitionRow:
    return PartitionRow(
        row,
        pins,
        partition_queries.unstable_offsets(row),
        findings.get((row.cluster_id, str(row))),
        owners.find_owner(str(row), row.topic),
        may_act and row.verdict == PartitionVerdict.HANGING,
    )


def _detail(request: HttpRequest, cluster: str, topic: str, number: int) -> Mapping[str, Any]:
    row = partition_queries.find_partition(cluster, topic, number) if number < _LARGEST else None
    shown = topic if len(topic) <= 249 else f"{topic[:249]}…"
    if row is None:
        return {"row": None, "cluster": cluster, "name": f"{shown}-{number}", "status": 404}
    name = (row.cluster_id, row.topic, row.partition)
    found = finding_queries.open_findings(cluster, f"partition:{row}")
    readers = group_queries.partition_readers(row.cluster_id, topic, number, most=_MOST_READERS + 1)
    queries = lag.partition_readers(row, most=_MOST_READERS)
    pins = partition_queries.partition_pins([name]).get(name, ())
    return {
        "row": row,
        "cluster": cluster,
        "name": str(row),
        "headline": partition_headline(row, pins, _blocked_consumers(readers, queries)),
        "happened": subject_history(request, cluster, f"partition:{row}"),
        "findings": action_buttons.finding_cards(request, found),
        "tone": next((each.severity for each in found if each.severity != Severity.INFO), ""),
        "open": [_open(request, cluster, pin) for pin in pins],
        "owner": owners.find_owner(str(row), row.topic),
        "readers": readers[:_MOST_READERS],
        "more_readers": len(readers) > _MOST_READERS,
        "queries": queries,
        "unstable": partition_queries.unstable_offsets(row),
        "waiting": sum(each.waiting == Waiting.PROBABLY for each in readers),
        **series_context(request, row.cluster_id, PARTITION, str(row)),
        **_replicas(request, row),
    }


def _blocked_consumers(
    readers: Sequence[GroupOffset], queries: Sequence[tuple[Query, PartitionLag]]
) -> Sequence[BlockedConsumer]:
    """Return the groups and queries that are at a blocked LSO."""
    groups = [
        BlockedConsumer(each.group.group_id, group_queries.offset_lag(each, each.high_watermark))
        for each in readers
        if each.waiting == Waiting.PROBABLY
    ]
    streams = [
        BlockedConsumer(str(query), part.lag_hw)
        for query, part in queries
        if part.waiting_state == Waiting.PROBABLY
    ]
    return [*groups, *streams]


def _open(request: HttpRequest, cluster: str, pin: PinRecord) -> Open:
    why = verdict_reason(VerdictReason(pin.ground))
    return Open(
        pin,
        f"{why[:1].upper()}{why[1:]}.",
        NEXT_STEPS[pin.ground],
        owners.of_transaction(pin.transactional_id),
        action_buttons.of_pin(request, cluster, pin),
    )


def _replicas(request: HttpRequest, row: PartitionRecord) -> Mapping[str, Any]:
    """Return the answers of replicas, and the status of a request that was just sent."""
    answers = partition_queries.replica_answers(row)
    value = request.GET.get("asked", "")
    at_ms = int(value) if value.isascii() and value.isdigit() and len(value) <= 15 else 0
    passed_ms = now_ms(request) - at_ms
    answered = {each.broker for each in answers if each.seen_ms >= at_ms}
    waiting = at_ms > 0 and not (answered and answered >= set(row.replicas))
    return {
        "answers": answers,
        "differ": _differ(answers),
        "cannot_ask": access.permission_refusal(access.actor_of(request, "page"), access.ASK_REPLICAS),
        "question": "failed" if value == "failed" else _stands(waiting, passed_ms),
    }


def _stands(waiting: bool, passed_ms: int) -> str:
    """Return the status of a request: "asking", "unanswered", or "" where nothing is waited for."""
    if not waiting:
        return ""
    return "asking" if passed_ms <= _UNANSWERED_MS else "unanswered"


def _differ(answers: Sequence[ReplicaLook]) -> bool:
    """Return whether replicas name different open transactions: a follower may lag behind its leader."""
    found = {
        frozenset((each["producer_id"], each["start_offset"]) for each in answer.producers)
        for answer in answers
        if not answer.error
    }
    return len(found) > 1
