"""Flink jobs with readable checkpoints: the list, and each job's own page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from dashboard.actions import offers
from dashboard.engines import flink_jobs as flink_queries
from dashboard.engines import queries as engines
from dashboard.engines.flink_jobs import LingeringTransaction
from dashboard.evaluation import finding_queries
from dashboard.models import FlinkJob
from dashboard.runtime.collector_names import FLINK
from dashboard.system import owners
from dashboard.web import addresses
from dashboard.web.action_buttons import Button, plan_button
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import Heading
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import CLUSTER, clock_steps, list_view, of_known_cluster, page_view, unknown_row
from dashboard.web.routes import MOST_HITS, Hit, PageRoute
from fenceline.engines.flink.restore import CommitFate, pool_sentences, producer_pools, restore_sentence
from fenceline.formatting import count_noun
from fenceline.plans.plan import MOST_SUBJECTS, Act

#: Deadlines pass without a new revision, so a page is rendered again this often.
_passing = clock_steps(2_000)
#: Maximum listed pending commits and other open transactions.
_MOST_LISTED = 200
_HEADINGS: Sequence[Heading] = (
    ("Job", "name", "", "asc"),
    (CLUSTER, "", "", ""),
    ("Newest checkpoint", "", "", ""),
    ("Completed", "age", "number", "asc"),
    ("Pending commits", "pending", "number", "desc"),
    ("On restore", "", "", ""),
)


class FlinkJobListQuery(list_forms.NumberedList, flink_queries.SortedFlinkJobs):
    """The query string of the list."""


@list_view("flink/list", FlinkJobListQuery, _HEADINGS, _passing)
def job_list(request: HttpRequest, wanted: FlinkJobListQuery) -> Mapping[str, Any]:
    page = flink_queries.job_page(wanted, page=wanted.page, size=wanted.size)
    fates = flink_queries.fates_by_job(page.items)
    return {
        "page": page,
        "rows": [{"of": job, "fates": _counted(fates[job.pk])} for job in page.items],
        "number": flink_queries.job_count(wanted.cluster),
        "is_configured": bool(settings.FENCELINE.flink_checkpoints),
    }


@page_view("flink/detail", _passing)
@of_known_cluster
def job_detail(request: HttpRequest, cluster: str, ident: str) -> Mapping[str, Any]:
    job = flink_queries.find_job(cluster, ident)
    if job is None:
        return unknown_row(cluster, ident)
    checkpoints = flink_queries.checkpoints_of(job)
    newest = flink_queries.newest_checkpoint(checkpoints)
    pending = flink_queries.pending_commits(job, newest)
    others = flink_queries.other_open_transactions(job, checkpoints)
    findings = finding_queries.open_findings(cluster, f"flink_job:{job.ident}")
    open_ids = [
        commit.committable.transactional_id for commit in pending if commit.fate is CommitFate.PENDING
    ]
    writers = flink_queries.writers_of(newest) if newest else ()
    name = (newest.name or job.ident) if newest else ""
    run, troubles = engines.job_report(job)
    return {
        "row": job,
        "cluster": cluster,
        "owner": owners.find_owner(*job.prefixes, job.ident),
        "sentence": restore_sentence(name, [commit.fate for commit in pending]) if newest else job.error,
        "checkpoints": checkpoints,
        "newest": newest,
        "writers": writers,
        "pools": [" ".join(pool_sentences(pool)) for pool in producer_pools(writers)],
        "fates": _counted([commit.fate for commit in pending]),
        "pending": pending[:_MOST_LISTED],
        "more": max(0, len(pending) - _MOST_LISTED),
        "others": others[:_MOST_LISTED],
        "more_others": max(0, len(others) - _MOST_LISTED),
        "expires_ms": min(
            (commit.expires_ms for commit in pending if commit.expires_ms is not None), default=None
        ),
        "findings": findings,
        "commit": _commit_button(request, job, open_ids),
        "fence": _fence_button(request, job, others),
        "run": run,
        "troubles": troubles,
    }


def _commit_button(request: HttpRequest, job: FlinkJob, open_ids: Sequence[str]) -> Button | None:
    """Return a button that commits the newest checkpoint's open transactions, None without any."""
    if not open_ids:
        return None
    chosen = open_ids[:MOST_SUBJECTS]
    which = "the first " if len(chosen) < len(open_ids) else ""
    words = f"Commit {which}{count_noun(len(chosen), 'pending transaction')}…"
    return plan_button(request, Act.COMMIT_FLINK, job.cluster.name, chosen, words, why_not=job.error)


def _fence_button(
    request: HttpRequest, job: FlinkJob, others: Sequence[LingeringTransaction]
) -> Button | None:
    """Return a button that fences transactions that no checkpoint will commit, None if all are refused."""
    rows = [other.row for other in others[:_MOST_LISTED]]
    offered = offers.of_transactions(rows, now_ms=now_ms(request))
    fences = [
        offer.subject
        for row in rows
        for offer in offers.available_offers(offered[row.pk])
        if offer.act is Act.FENCE and not offer.may_lose
    ][:MOST_SUBJECTS]
    words = f"Fence {count_noun(len(fences), 'transaction')} that no checkpoint will commit…"
    return plan_button(request, Act.FENCE, job.cluster.name, fences, words) if fences else None


def _counted(fates: Sequence[CommitFate]) -> Sequence[tuple[CommitFate, int]]:
    number = Counter(fates)
    return [(fate, number[fate]) for fate in CommitFate if number[fate]]


def _search(cluster: str, asked: str) -> Iterable[Hit]:
    rows = flink_queries.jobs_after(
        flink_queries.FlinkJobCriteria(cluster=cluster, q=asked), place=0, limit=MOST_HITS
    )
    for row in rows:
        yield Hit(str(row), addresses.flink_job_of(row), f"{row.ident} · {row.cluster.name}")


ROUTES = (
    PageRoute(
        "flink-jobs",
        "flink-jobs",
        job_list,
        search=_search,
        parent="queries",
        shows=FLINK,
        searched="prefixes, job ids, folders",
        has_files=True,
        as_of_now="Former checkpoints are not kept.",
        plural="Flink jobs",
    ),
    PageRoute(
        "flink-job",
        "flink-jobs/<str:cluster>/<text:ident>",
        job_detail,
        parent="flink-jobs",
        as_of_now="Former checkpoints are not kept.",
    ),
)
