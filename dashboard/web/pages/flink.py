"""Every Flink job whose checkpoints are read: the list, and each job's own page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse

from dashboard.actions import offers
from dashboard.evaluation import finding_queries
from dashboard.models import FlinkJob
from dashboard.streaming import engines
from dashboard.streaming import flink_jobs as flink_queries
from dashboard.streaming.flink_jobs import LingeringTransaction
from dashboard.system import access, owners
from dashboard.web import action_buttons, page_context
from dashboard.web.action_buttons import request_actor
from dashboard.web.empty_state import why_empty
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.columns import Heading, table_columns
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from fenceline.decode import text
from fenceline.flink.restore import CommitFate, restore_sentence
from fenceline.formatting import count_noun
from fenceline.plans.plan import MOST_SUBJECTS, Act

#: Deadlines end without any change: a page is made anew so often.
_PASSING_MS = 2_000
#: So many pending commits, and other open transactions, are listed.
_MOST_LISTED = 200
_LONGEST_ASKED = 200
_CLUSTER = "Cluster"
_HEADINGS: Sequence[Heading] = (
    ("Job", "name", "", "asc"),
    (_CLUSTER, "", "", ""),
    ("Newest checkpoint", "", "", ""),
    ("Completed", "age", "number", "asc"),
    ("Pending commits", "pending", "number", "desc"),
    ("On restore", "", "", ""),
)


@dataclass(frozen=True, slots=True)
class FlinkJobRow:
    """A job as the list shows it."""

    of: FlinkJob
    #: How many of what its newest checkpoint decided have which fate, the worst first.
    fates: Sequence[tuple[CommitFate, int]]


class FlinkJobListQuery(list_forms.NumberedList, flink_queries.SortedFlinkJobs):
    """The query string of the list."""


@signed_in
def job_list(request: HttpRequest) -> HttpResponse:
    """Show one page of the jobs that the query string asks for."""
    wanted = list_forms.read_request(request, FlinkJobListQuery)
    passing = now_ms(request) // _PASSING_MS
    return render_page(request, "flink/list", lambda: _list(request, wanted), depends_on=passing)


@signed_in
def job_detail(request: HttpRequest, cluster: str, ident: str) -> HttpResponse:
    """Show the checkpoints of one job and what they decided, or say plainly that it is not known."""
    if not any(row.name == cluster for row in page_context.chrome_of(request).clusters):
        raise Http404(f"No cluster “{cluster}” is configured.")
    passing = now_ms(request) // _PASSING_MS
    return render_page(request, "flink/detail", lambda: _detail(request, cluster, ident), depends_on=passing)


def _list(request: HttpRequest, wanted: FlinkJobListQuery) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    several = len(frame.clusters) > 1 and not frame.cluster
    page = flink_queries.job_page(wanted, page=wanted.page, size=wanted.size)
    fates = flink_queries.fates_by_job(page.items)
    headings = [each for each in _HEADINGS if several or each[0] != _CLUSTER]
    rows = [FlinkJobRow(job, _counted(fates[job.pk])) for job in page.items]
    return {
        "wanted": wanted,
        "narrowed": wanted.narrowed,
        "page": page,
        "rows": rows,
        "columns": table_columns(headings, wanted.sort, descending=wanted.descending),
        "number": flink_queries.job_count(frame.cluster),
        "sizes": list_forms.SIZES,
        "several": several,
        "is_configured": bool(settings.FENCELINE.flink_checkpoints),
        "empty": "" if rows else why_empty(frame, narrowed=wanted.narrowed),
    }


def _detail(request: HttpRequest, cluster: str, ident: str) -> Mapping[str, Any]:
    job = flink_queries.find_job(cluster, ident)
    if job is None:
        shown = ident if len(ident) <= _LONGEST_ASKED else f"{ident[:_LONGEST_ASKED]}…"
        return {"row": None, "cluster": cluster, "asked": text.escape_bytes(shown.encode()), "status": 404}
    checkpoints = flink_queries.checkpoints_of(job)
    newest = flink_queries.newest_checkpoint(checkpoints)
    pending = flink_queries.pending_commits(job, newest)
    others = flink_queries.other_open_transactions(job, checkpoints)
    found = finding_queries.open_findings(cluster, f"flink_job:{job.ident}")
    open_ids = [each.committable.transactional_id for each in pending if each.fate is CommitFate.PENDING]
    name = (newest.name or job.ident) if newest else ""
    run, troubles = engines.job_report(job)
    return {
        "row": job,
        "cluster": cluster,
        "owner": owners.find_owner(*job.prefixes, job.ident),
        "sentence": restore_sentence(name, [each.fate for each in pending]) if newest else job.error,
        "checkpoints": checkpoints,
        "newest": newest,
        "writers": flink_queries.writers_of(newest) if newest else (),
        "fates": _counted([each.fate for each in pending]),
        "pending": pending[:_MOST_LISTED],
        "more": max(0, len(pending) - _MOST_LISTED),
        "others": others[:_MOST_LISTED],
        "more_others": max(0, len(others) - _MOST_LISTED),
        "expires_ms": min((each.expires_ms for each in pending if each.expires_ms is not None), default=None),
        "findings": action_buttons.finding_cards(request, found),
        "commit": _commit_button(request, job, open_ids),
        "fence": _fence_button(request, others),
        "run": run,
        "troubles": troubles,
    }


@dataclass(frozen=True, slots=True)
class PlanButton:
    """A button that plans an act on some of a job's transactions; off with a `why_not`."""

    act: Act
    subjects: Sequence[str]
    words: str
    why_not: str


def _commit_button(request: HttpRequest, job: FlinkJob, open_ids: Sequence[str]) -> PlanButton | None:
    """Return the commit of what the newest checkpoint decided, None where nothing is open."""
    if not open_ids:
        return None
    some = open_ids[:MOST_SUBJECTS]
    which = "the first " if len(some) < len(open_ids) else ""
    words = f"Commit {which}{count_noun(len(some), 'pending transaction')}…"
    return _plan_button(request, Act.COMMIT_FLINK, some, words, job.error)


def _fence_button(request: HttpRequest, others: Sequence[LingeringTransaction]) -> PlanButton | None:
    """Return the fence of what no checkpoint will commit; None where the planner would refuse each."""
    rows = [each.row for each in others[:_MOST_LISTED]]
    found = offers.of_transactions(rows, now_ms=now_ms(request))
    fences = [
        offer.subject
        for row in rows
        for offer in offers.available_offers(found[row.pk])
        if offer.act is Act.FENCE and not offer.may_lose
    ][:MOST_SUBJECTS]
    words = f"Fence {count_noun(len(fences), 'transaction')} that no checkpoint will commit…"
    return _plan_button(request, Act.FENCE, fences, words) if fences else None


def _plan_button(
    request: HttpRequest, act: Act, subjects: Sequence[str], words: str, why_not: str = ""
) -> PlanButton:
    refused = access.permission_refusal(request_actor(request), access.OF_ACT[act])
    return PlanButton(act, subjects, words, refused or why_not)


def _counted(fates: Sequence[CommitFate]) -> Sequence[tuple[CommitFate, int]]:
    number = Counter(fates)
    return [(fate, number[fate]) for fate in CommitFate if number[fate]]
