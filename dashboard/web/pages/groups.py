"""Every consumer group: the list, families folded, and each group's own page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from dashboard.evaluation import finding_queries
from dashboard.groups import queries as group_queries
from dashboard.labels.status import trend_word
from dashboard.models import FindingRecord, GroupOffset
from dashboard.system import owners
from dashboard.web import action_buttons, page_context
from dashboard.web.empty_state import why_empty
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.columns import Heading, table_columns
from dashboard.web.headlines.group import group_headline
from dashboard.web.rendering import render_page, signed_in
from dashboard.web.series.context import series_context
from dashboard.web.subject_history import subject_history
from fenceline.decode import text
from fenceline.facts import Severity
from fenceline.kafka.families import family_of
from fenceline.kafka.groups import Waiting
from fenceline.owners import Owner
from fenceline.series.points import GROUP

#: How many partitions of a group its page shows at a time.
_PARTITIONS = 100
_LONGEST_ASKED = 200
_CLUSTER, _OWNER = "Cluster", "Owner"
_HEADINGS: Sequence[Heading] = (
    ("Group", "name", "col-name", "asc"),
    ("Status", "worst", "col-status", "asc"),
    ("Finding", "", "col-finding", ""),
    (_CLUSTER, "", "col-cluster", ""),
    ("Lag to LSO", "unread", "col-unread number", "desc"),
    ("Lag to end", "lag", "col-lag number", "desc"),
    ("Behind", "behind", "col-behind number", "desc"),
    ("Trend", "", "col-trend", ""),
    ("Blocked by", "", "col-blocker", ""),
    ("Application", "", "col-application", ""),
    (_OWNER, "", "col-owner", ""),
    ("State", "", "col-group-state", ""),
    ("Members", "", "col-members number", ""),
)


@dataclass(frozen=True, slots=True)
class LagTrendLine:
    """Lag to the end of the log over the last polls, oldest first, and its trend."""

    points: Sequence[tuple[int, int]]
    way: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One family, or a group of its own, and its trend."""

    of: group_queries.GroupFamily
    trend: LagTrendLine
    finding: FindingRecord | None
    owner: Owner | None

    @property
    def application(self) -> str:
        """Return the family of its group, the name without what is random in it."""
        return self.of.group.family if self.of.group else self.of.name


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    """What a group committed for one partition, with its lag to the LSO and to the end."""

    of: GroupOffset
    lag_lso: int | None
    lag_hw: int | None
    trend: LagTrendLine
    blockers: Sequence[group_queries.BlockingTransaction]


class GroupListQuery(list_forms.NumberedList, group_queries.SortedGroups):
    """The query string of the list."""


@signed_in
def group_list(request: HttpRequest) -> HttpResponse:
    """Show one page of the groups that the query string asks for."""
    wanted = list_forms.read_request(request, GroupListQuery)
    return render_page(request, "groups/list", lambda: _list(request, wanted))


@signed_in
def group_detail(request: HttpRequest, cluster: str, group_id: str) -> HttpResponse:
    """Show how one group does in each of its partitions, or that it is not known."""
    if not any(row.name == cluster for row in page_context.chrome_of(request).clusters):
        raise Http404(f"No cluster “{cluster}” is configured.")
    return render_page(request, "groups/detail", lambda: _detail(request, cluster, group_id))


def _list(request: HttpRequest, wanted: GroupListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    several = len(frame.clusters) > 1 and not frame.cluster
    page = group_queries.group_page(wanted, page=wanted.page, size=wanted.size)
    statuses = group_queries.status_counts(frame.cluster)
    shown = {_CLUSTER: several, _OWNER: frame.has_owners}
    headings = [each for each in _HEADINGS if shown.get(each[0], True)]
    findings = frame.worst_findings("group")
    return {
        "wanted": wanted,
        "narrowed": wanted.narrowed,
        "page": page,
        "rows": [_row(each, findings) for each in page.items],
        "explanation": _explanation(page.items) if wanted.family else "",
        "columns": table_columns(headings, wanted.sort, descending=wanted.descending),
        "statuses": statuses.items(),
        "number": sum(n for status, n in statuses.items() if status != group_queries.PENDING),
        "sizes": list_forms.SIZES,
        "several": several,
        "empty": "" if page.items else why_empty(frame, narrowed=wanted.narrowed),
    }


def _row(of: group_queries.GroupFamily, findings: Mapping[tuple[int, str], FindingRecord]) -> GroupRow:
    group = of.group
    return GroupRow(
        of,
        _trend(group.trend if group else "", 2),
        findings.get((group.cluster_id, group.group_id)) if group else None,
        owners.find_owner(of.name, group.family if group else ""),
    )


def _detail(request: HttpRequest, cluster: str, group_id: str) -> Mapping[str, Any]:
    row = group_queries.find_group(cluster, group_id)
    if row is None:
        shown = group_id if len(group_id) <= _LONGEST_ASKED else f"{group_id[:_LONGEST_ASKED]}…"
        return {"row": None, "cluster": cluster, "asked": text.escape_bytes(shown.encode()), "status": 404}
    page = group_queries.offset_page(row, page=request.GET.get("page"), size=_PARTITIONS)
    found = finding_queries.open_findings(cluster, f"group:{row.group_id}")
    stuck = group_queries.blocked_offsets(row, most=_PARTITIONS)
    blockers = _waits_for(stuck)
    return {
        "row": row,
        "cluster": cluster,
        "headline": group_headline(row, stuck, blockers),
        "happened": subject_history(request, cluster, f"group:{row.group_id}"),
        "page": page,
        "parts": [_part(each) for each in page.items],
        "findings": action_buttons.finding_cards(request, found),
        "tone": next((each.severity for each in found if each.severity != Severity.INFO), ""),
        "owner": owners.find_owner(row.group_id, row.family),
        "trend": _trend(row.trend, 2),
        "unread": _trend(row.trend, 1),
        "waits_for": blockers,
        "explanation": family_of(row.group_id).explanation,
        **series_context(request, row.cluster_id, GROUP, row.group_id),
    }


def _explanation(found: Sequence[group_queries.GroupFamily]) -> str:
    """Return why groups of one family are folded together."""
    return next((family_of(each.name).explanation for each in found), "")


def _part(row: GroupOffset) -> CommittedPartition:
    lag_lso, lag_hw = (
        group_queries.offset_lag(row, row.lso),
        group_queries.offset_lag(row, row.high_watermark),
    )
    return CommittedPartition(
        row, lag_lso, lag_hw, _trend(row.points, 2), group_queries.blocking_transactions(row)
    )


def _trend(kept: str, which: int) -> LagTrendLine:
    points = group_queries.history_points(kept, which)
    return LagTrendLine(points, trend_word([value for _, value in points]))


def _waits_for(rows: Sequence[GroupOffset]) -> Sequence[group_queries.BlockingTransaction]:
    """Return the transactions that the group waits for in any of some partitions, each once."""
    waiting = [row for row in rows if row.unstable or row.waiting == Waiting.PROBABLY]
    return group_queries.distinct_blockers(
        each for row in waiting for each in group_queries.blocking_transactions(row)
    )
