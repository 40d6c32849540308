"""Consumer groups: the list with folded families, and each group's own page."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.http import HttpRequest

from dashboard.evaluation import finding_queries
from dashboard.groups import queries as group_queries
from dashboard.groups.queries import group_stores
from dashboard.labels.status import STATUS_LABELS, StatusLabel, trend_word
from dashboard.models import FindingRecord, GroupOffset
from dashboard.runtime.collector_names import GROUPS
from dashboard.system import owners
from dashboard.web import addresses, page_context
from dashboard.web.charts.series_figures import series_context, subject_history
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import Filters, Heading
from dashboard.web.headlines.detail import group_headline
from dashboard.web.rendering import CLUSTER, OWNER, list_view, of_known_cluster, page_view, unknown_row
from dashboard.web.routes import MOST_HITS, Hit, PageRoute
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import Waiting, family_of
from fenceline.series.points import GROUP

_PARTITIONS = 100
_HEADINGS: Sequence[Heading] = (
    ("Group", "name", "col-name", "asc"),
    ("Status", "worst", "col-status", "asc"),
    ("Finding", "", "col-finding", ""),
    (CLUSTER, "", "col-cluster", ""),
    ("Lag to LSO", "unread", "col-unread number", "desc"),
    ("Lag to end", "lag", "col-lag number", "desc"),
    ("Behind", "behind", "col-behind number", "desc"),
    ("Trend", "", "col-trend", ""),
    ("Blocked by", "", "col-blocker", ""),
    ("Application", "", "col-application", ""),
    (OWNER, "", "col-owner", ""),
    ("State", "", "col-group-state", ""),
    ("Members", "", "col-members number", ""),
)
_STATUS_LABELS = {**STATUS_LABELS, group_queries.PENDING: StatusLabel("commit pending", "", "")}


class GroupListQuery(list_forms.NumberedList, group_queries.SortedGroups):
    """The query string of the list."""


@list_view("groups/list", GroupListQuery, _HEADINGS)
def group_list(request: HttpRequest, wanted: GroupListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    page = group_queries.group_page(wanted, page=wanted.page, size=wanted.size)
    statuses = group_queries.status_counts(frame.cluster)
    findings = frame.worst_findings("group")
    return {
        "page": page,
        "rows": [_row(family, findings) for family in page.items],
        # Why groups of one family are folded into one row.
        "explanation": family_of(page.items[0]["name"]).explanation if wanted.family and page.items else "",
        "filters": [Filters(request.GET, wanted).row("status", statuses, _STATUS_LABELS)],
        "number": sum(n for status, n in statuses.items() if status != group_queries.PENDING),
    }


def _row(family: Mapping[str, Any], findings: Mapping[tuple[int, str], FindingRecord]) -> Mapping[str, Any]:
    group, name = family["group"], family["name"]
    return {
        "of": family,
        "trend": _trend(group.trend if group else "", 2),
        "finding": findings.get((group.cluster_id, group.group_id)) if group else None,
        "owner": owners.find_owner(name, group.family if group else ""),
        # A group's family is its name without random parts.
        "application": group.family if group else name,
    }


@page_view("groups/detail")
@of_known_cluster
def group_detail(request: HttpRequest, cluster: str, group_id: str) -> Mapping[str, Any]:
    row = group_queries.find_group(cluster, group_id)
    if row is None:
        return unknown_row(cluster, group_id)
    page = group_queries.offset_page(row, page=request.GET.get("page"), size=_PARTITIONS)
    findings = finding_queries.open_findings(cluster, f"group:{row.group_id}")
    stuck = group_queries.blocked_offsets(row, most=_PARTITIONS)
    blockers = _waits_for(stuck)
    return {
        "row": row,
        "cluster": cluster,
        "headline": group_headline(row, stuck, blockers),
        "happened": subject_history(request, cluster, f"group:{row.group_id}"),
        "page": page,
        "parts": [_part(offset) for offset in page.items],
        "findings": findings,
        "owner": owners.find_owner(row.group_id, row.family),
        "trend": _trend(row.trend, 2),
        "unread": _trend(row.trend, 1),
        "waits_for": blockers,
        "stores": group_stores(row),
        "explanation": family_of(row.group_id).explanation,
        **series_context(request, row.cluster_id, GROUP, row.group_id),
    }


def _part(row: GroupOffset) -> Mapping[str, Any]:
    markers = (row.lso or 0) - (row.offset or 0) if row.only_markers else 0
    return {
        "of": row,
        "lag_lso": row.lag_lso,
        "lag_hw": row.lag_hw,
        "markers": markers,
        "trend": _trend(row.points, 2),
        "blockers": group_queries.blocking_transactions(row),
    }


def _trend(kept: str, which: int) -> Mapping[str, Any]:
    points = group_queries.history_points(kept, which)
    return {"points": points, "way": trend_word([value for _, value in points])}


def _waits_for(rows: Sequence[GroupOffset]) -> Sequence[GroupBlocker]:
    """Return the distinct transactions that the group waits for in these partitions."""
    waiting = [row for row in rows if row.unstable or row.waiting == Waiting.PROBABLY]
    return group_queries.distinct_blockers(
        blocker for row in waiting for blocker in group_queries.blocking_transactions(row)
    )


def _search(cluster: str, asked: str) -> Iterable[Hit]:
    rows = group_queries.groups_after(
        group_queries.GroupCriteria(cluster=cluster, q=asked), place=0, limit=MOST_HITS
    )
    for row in rows:
        yield Hit(row.group_id, addresses.group_url(row.cluster.name, row.group_id), row.cluster.name)


ROUTES = (
    PageRoute(
        "groups",
        "groups",
        group_list,
        search=_search,
        plural="consumer groups",
        key="g",
        heading="Monitor",
        shows=GROUPS,
        searched="groups",
        has_files=True,
        as_of_now="The history of lag and status is not kept.",
    ),
    PageRoute(
        "group",
        "groups/<str:cluster>/<text:group_id>",
        group_detail,
        parent="groups",
        as_of_now="Its lag over time is of the range that you chose.",
    ),
)
