"""The Spark job's reports: each application by day, and its busiest ids."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from dashboard.history import job_outputs
from dashboard.history.job_outputs import Busiest, Day, ReportTrouble
from dashboard.history.queries import Bucket
from dashboard.labels.transition import NOTABLE
from dashboard.runtime.criteria import Name
from dashboard.web import page_context
from dashboard.web.charts import figures as charts
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms.lists import Filters
from dashboard.web.forms.time_ranges import PageRange
from dashboard.web.rendering import read_query, render_page, signed_in
from dashboard.web.routes import PageRoute
from fenceline.facts import ABORTS, TransitionKind
from fenceline.formatting import count_noun
from fenceline.grouping import grouped
from fenceline.history.reports import Manifest, ReportFigures, sum_figures
from fenceline.series import histograms

#: A Live page shows the newest days with reports, at most this many.
_LIVE_DAYS = 30
#: Figures that rank the ids, with their labels.
RANKS = {"commits": "commits", "aborts": "aborts", "epochs": "epochs used"}
_APPLICATIONS, _IDS = 50, 20
_DAY_MS = 86_400_000
#: The connector for the Spark version that this release is tested with.
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
_CAUSES = tuple(kind for kind in NOTABLE if kind in ABORTS)


class ReportQuery(list_forms.ListQuery):
    cluster: Name = ""
    by: Literal["commits", "aborts", "epochs"] = "commits"
    application: Name = ""


@dataclass(frozen=True, slots=True)
class ReportRow:
    """An application or an id in a table. Durations in milliseconds, None without ended transactions."""

    name: str
    application: str
    figures: ReportFigures
    steps: Sequence[int] = ()

    @property
    def abort_causes(self) -> Sequence[tuple[TransitionKind, int]]:
        """Return the number of aborts by cause, worst first."""
        return [(kind, n) for kind in _CAUSES if (n := self.figures.counts.get(kind, 0)) > 0]

    @property
    def aborted_percent(self) -> float | None:
        """Return the percentage of aborts among its ended transactions, None without any."""
        ended = self.figures.commits + self.figures.aborts
        return 100 * self.figures.aborts / ended if ended > 0 else None

    @property
    def open_times(self) -> Sequence[float | None]:
        """Return p50, p95 and p99 of the time from begin to decision."""
        return [histograms.quantile(self.figures.open_times, q) for q in (0.5, 0.95, 0.99)]

    @property
    def marker_times(self) -> Sequence[float | None]:
        """Return p50 and p99 of the time from decision to the last marker."""
        return [histograms.quantile(self.figures.marker_times, q) for q in (0.5, 0.99)]


@signed_in
def report_page(request: HttpRequest) -> HttpResponse:
    """Show the reports of one cluster, or the command that makes them."""
    frame = page_context.chrome_of(request)
    # A report belongs to one cluster.
    cluster = frame.cluster or (frame.clusters[0].name if frame.clusters else "")
    url = settings.FENCELINE.history_url
    status = job_outputs.report_status(url, cluster) if is_configured() else None
    known = (status.query, status.batch) if isinstance(status, Manifest) else status
    return render_page(request, "reports/page", lambda: _shown(request, cluster, status), depends_on=known)


def is_configured() -> bool:
    return bool(settings.FENCELINE.history_url)


def day_range(manifest: Manifest, asked: PageRange) -> tuple[str, str]:
    """Return the first and the last day of a page's range, in UTC; Live ends with the newest figures."""
    shown = asked.window("30d")
    last = _day(shown.to_ms - 1)
    if not asked.is_live:
        return str(_day(shown.from_ms)), str(last)
    newest = job_outputs.last_day(manifest)
    last = min(date.fromisoformat(newest), last) if newest else last
    return str(last - timedelta(days=_LIVE_DAYS - 1)), str(last)


def _day(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).date()


def _shown(request: HttpRequest, cluster: str, status: Manifest | ReportTrouble | None) -> Mapping[str, Any]:
    wanted = read_query(request, ReportQuery)
    days: Sequence[Day] = ()
    busiest, first, last = Busiest(), "", ""
    manifest, trouble = (status, None) if isinstance(status, Manifest) else (None, status)
    if manifest is not None:
        first, last = day_range(manifest, page_context.chrome_of(request).time_range)
        figures = _find(manifest, first, last, wanted)
        if isinstance(figures, ReportTrouble):
            trouble = figures
        else:
            days, busiest = figures
    rows = _rows(days, first, last)
    whole = sum_figures(day.figures for day in days)
    shown: dict[str, Any] = {
        "wanted": wanted,
        "clears": Filters(request.GET, wanted).clears(),
        "ranks": RANKS,
        "rank_words": RANKS[wanted.by],
        "of_cluster": cluster,
        "manifest": manifest,
        "configured": is_configured(),
        "trouble": trouble,
        "headline": _headline(trouble, manifest, whole, wanted, cluster, f"from {first} to {last}"),
        "newest": job_outputs.last_day(manifest) if manifest else "",
        "rows": rows[:_APPLICATIONS],
        "more": len(rows) - _APPLICATIONS,
        "busiest": [
            ReportRow(busy.transactional_id, busy.application, busy.figures) for busy in busiest.items
        ],
        "ids": busiest,
        "first": first,
        "last": last,
        "strange": _strange(manifest),
    }
    return {**shown, **_chart(days, first, last), **_how(cluster)}


def _find(
    manifest: Manifest, first: str, last: str, wanted: ReportQuery
) -> tuple[Sequence[Day], Busiest] | ReportTrouble:
    """Return the figures of a range of days, or the reason why they could not be read."""
    url = settings.FENCELINE.history_url
    days = job_outputs.application_days(url, manifest, first, last)
    if isinstance(days, ReportTrouble):
        return days
    if wanted.application:
        days = [day for day in days if day.application == wanted.application]
    busiest = job_outputs.busiest_ids(
        url, manifest, first, last, application=wanted.application, by=wanted.by, most=_IDS
    )
    return busiest if isinstance(busiest, ReportTrouble) else (days, busiest)


def _rows(days: Sequence[Day], first: str, last: str) -> Sequence[ReportRow]:
    """Return applications with their sums; those with most ended transactions come first."""
    rows = [
        ReportRow(name, name, sum_figures(day.figures for day in mine), _steps(mine, first, last))
        for name, mine in grouped((day.application, day) for day in days).items()
    ]
    return sorted(rows, key=lambda row: (-row.figures.commits - row.figures.aborts, row.name))


def _steps(days: Sequence[Day], first: str, last: str) -> Sequence[int]:
    ended = {day.day: day.figures.commits + day.figures.aborts for day in days}
    return [ended.get(day, 0) for day in _between(first, last)]


def _between(first: str, last: str) -> Sequence[str]:
    start = date.fromisoformat(first)
    return [str(start + timedelta(days=n)) for n in range((date.fromisoformat(last) - start).days + 1)]


def _chart(days: Sequence[Day], first: str, last: str) -> Mapping[str, Any]:
    """Return commits and aborts by day as a figure, as a text and as a table."""
    if not days:
        return {"chart": None}
    by_day = grouped((day.day, day.figures) for day in days)
    sums = [(day, sum_figures(by_day[day])) for day in _between(first, last)]
    figure = charts.activity_strip([Bucket(_start_ms(day), _DAY_MS, figures.counts) for day, figures in sums])
    figure["layout"]["xaxis"]["hoverformat"] = "%b %d"
    whole = sum_figures(figures for _, figures in sums)
    words = f"By day: {count_noun(whole.commits, 'commit')}, {count_noun(whole.aborts, 'abort')}."
    lines = [ReportRow(day, "", figures) for day, figures in reversed(sums) if figures.counts]
    return {"chart": figure, "chart_words": words, "lines": lines}


def _start_ms(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1_000)


def _headline(
    trouble: ReportTrouble | None,
    manifest: Manifest | None,
    whole: ReportFigures,
    wanted: ReportQuery,
    cluster: str,
    days: str,
) -> str:
    if not cluster:
        return "No cluster is configured."
    if trouble is not None:
        return f"{trouble.what}."
    if manifest is None:
        return "Reports are not configured."
    ended = whole.commits + whole.aborts
    of = f" of {list_forms.clip_value(wanted.application)}" if wanted.application else ""
    if not ended:
        return f"No transaction{of} ended {days}."
    share = 100 * whole.aborts / ended
    aborted = "0" if not whole.aborts else f"{share:.2f} %" if share >= 0.01 else "Less than 0.01 %"
    return f"{aborted} of {count_noun(ended, 'transaction')}{of} aborted {days}."


def _strange(manifest: Manifest | None) -> Sequence[tuple[str, int, int, int, str]]:
    """Return undecodable records: reason, number, partition and offset of the first, its problem."""
    if manifest is None:
        return ()
    return [(reason, n, *manifest.strange[reason]) for reason, n in sorted(manifest.undecoded.items())]


def _how(cluster: str) -> Mapping[str, Any]:
    """Return the complete command that makes this cluster's reports."""
    config = settings.FENCELINE
    properties = config.clusters[cluster].properties if cluster in config.clusters else {}
    url = config.history_url.rstrip("/") or "s3a://bucket/fenceline-history"
    secured = properties.get("security.protocol", "PLAINTEXT")
    lines = [
        f"spark-submit --packages {_CONNECTOR} --py-files fenceline.zip",
        "  spark_pipeline/history.py",
        f"  --bootstrap-servers {properties.get('bootstrap.servers', 'HOST:9092')}",
        f"  --cluster {cluster or 'NAME'}",
        f"  --output {url}",
        f"  --checkpoint {url}-checkpoint",
    ]
    if any(owner.application for owner in config.owners):
        names = (shlex.quote(f"{owner.match}={owner.application}") for owner in config.owners)
        lines += [f"  --application {name}" for name in names]
    if secured != "PLAINTEXT":
        lines.append(f"  --kafka security.protocol={secured} @secret.args")
    return {
        "command": " \\\n".join(lines),
        "secured": secured != "PLAINTEXT",
        "config_file": config.path.name if config.path else "fenceline.toml",
        "suggested_url": url,
    }


ROUTES = (PageRoute("reports", "reports", report_page, key="r", heading="Admin"),)
