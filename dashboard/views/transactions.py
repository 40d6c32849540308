"""Every transactional id: the list, and each one's own page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from dashboard import queries
from dashboard.models import FindingRecord, Transaction
from dashboard.views import context, machine, way
from dashboard.views.clock import now_ms
from dashboard.views.listing import SIZES, STATES, Wanted, parse
from dashboard.views.page import answer, signed_in
from fenceline.decode import text
from fenceline.facts import Severity

#: How often a page looks whether a timeout has passed meanwhile.
_PASSING_MS = 15_000
_LONGEST_ASKED = 200
#: Words, sort key, class, and the direction that puts the interesting end first.
_COLUMNS = (
    ("State", "state", "col-state", "asc"),
    ("Transactional id", "id", "", "asc"),
    ("Cluster", "", "col-cluster", ""),
    ("Open for", "started", "col-age number", "asc"),
    ("Producer id", "producer", "col-producer number", "asc"),
    ("Epoch", "epoch", "col-epoch number", "desc"),
    ("Timeout", "timeout", "col-timeout number", "desc"),
    ("Partitions", "partitions", "col-partitions number", "desc"),
    ("Last update", "updated", "col-updated number", "desc"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `sorted` is "ascending", "descending" or "", `dir` what a click asks for."""

    words: str
    sort: str
    css: str
    sorted: str
    dir: str


@signed_in
def transaction_list(request: HttpRequest) -> HttpResponse:
    """Show one page of the transactional ids that the query string asks for."""
    frame = context.of(request)
    wanted = parse(request.GET.dict(), frame.cluster, [row.name for row in frame.clusters])
    # A filter by age lets rows in as time passes, without any change.
    ageing = now_ms(request) if wanted.filter.min_age_s is not None else 0
    return answer(request, "transactions", lambda: _list(request, wanted), depends_on=ageing)


@signed_in
def transaction_detail(request: HttpRequest, cluster: str, transactional_id: str) -> HttpResponse:
    """Show what is known of one transactional id, or say plainly that it is not known."""
    if not any(row.name == cluster for row in context.of(request).clusters):
        raise Http404(f"No cluster “{cluster}” is configured.")
    # A timeout passes without any change.
    passing = now_ms(request) // _PASSING_MS
    return answer(
        request, "transaction", lambda: _detail(request, cluster, transactional_id), depends_on=passing
    )


def _list(request: HttpRequest, wanted: Wanted) -> Mapping[str, Any]:
    frame = context.of(request)
    several = len(frame.clusters) > 1 and not frame.cluster
    page = queries.transactions(wanted.filter, now_ms=now_ms(request), page=wanted.page, size=wanted.size)
    return {
        "wanted": wanted,
        "page": page,
        "first": (page.number - 1) * page.size + 1,
        "last": (page.number - 1) * page.size + len(page.items),
        "columns": _columns(wanted.filter, several=several),
        "states": STATES,
        "sizes": SIZES,
        "several": several,
        "found": _found_by_name(frame.findings),
        "empty": "" if page.items else _why_empty(frame, wanted),
    }


def _columns(wanted: queries.Filter, *, several: bool) -> Sequence[Column]:
    """Return the table's columns; a click on the sorted one turns it round."""
    found = []
    for words, sort, css, first in _COLUMNS:
        here = bool(sort) and sort == wanted.sort
        turned = "asc" if wanted.descending else "desc"
        order = ("descending" if wanted.descending else "ascending") if here else ""
        if sort or several:
            found.append(Column(words, sort, css, order, turned if here else first))
    return found


def _found_by_name(findings: Sequence[FindingRecord]) -> dict[tuple[str, str], FindingRecord]:
    """Return the worst finding about each transaction, by cluster and id."""
    prefix = "transaction:"
    return {
        (row.cluster.name, row.subject.removeprefix(prefix)): row
        for row in reversed(findings)
        if row.subject.startswith(prefix)
    }


def _why_empty(frame: context.Chrome, wanted: Wanted) -> str:
    """Return which of four reasons leaves the list empty; each reads differently to an operator."""
    if frame.freshness.blind and frame.freshness.unseen:
        return "unreachable"
    if frame.freshness.unseen or not frame.clusters:
        return "unseen"
    return "unmatched" if wanted.narrowed else "none"


def _detail(request: HttpRequest, cluster: str, transactional_id: str) -> Mapping[str, Any]:
    row = queries.transaction(cluster, transactional_id)
    if row is None:
        # No name longer than a line belongs into a sentence.
        shown = (
            transactional_id
            if len(transactional_id) <= _LONGEST_ASKED
            else f"{transactional_id[:_LONGEST_ASKED]}…"
        )
        return {
            "row": None,
            "asked": text.escape(shown.encode(errors="replace")),
            "cluster": cluster,
            "status": 404,
        }
    partitions = queries.partitions_of(row)
    findings = queries.findings(row.cluster.name, f"transaction:{row.transactional_id}")
    return {
        "row": row,
        "deadline": way.deadline(row, now_ms(request)),
        "findings": findings,
        "tone": next((found.severity for found in findings if found.severity != Severity.INFO), ""),
        "machine": machine.drawn(row.state),
        "steps": way.steps(row, partitions, queries.state_log_partitions(row.cluster.name)),
        "partitions": [part for part in partitions if part.topic != way.OFFSETS],
        "offsets": [part for part in partitions if part.topic == way.OFFSETS],
        "raw": json.dumps(_raw(row, partitions), indent=2, ensure_ascii=False),
    }


def _raw(row: Transaction, partitions: Sequence[Any]) -> dict[str, Any]:
    names = (
        "transactional_id",
        "state",
        "producer_id",
        "producer_epoch",
        "timeout_ms",
        "started_ms",
        "updated_ms",
        "client_version",
        "log_partition",
        "log_offset",
        "rev",
    )
    facts: dict[str, Any] = {"cluster": row.cluster.name} | {name: getattr(row, name) for name in names}
    facts["partitions"] = {part.topic: list(part.partitions) for part in partitions}
    facts["transactional_id_bytes"] = len(text.unescape(row.transactional_id))
    return facts
