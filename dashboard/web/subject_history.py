"""The findings about one subject: the event history of its page."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from dashboard.evaluation import finding_queries
from dashboard.evaluation.finding_queries import FindingCriteria
from dashboard.models import FindingRecord
from dashboard.runtime.criteria import LONGEST_SEARCH
from dashboard.web import page_context

#: Maximum findings on a page.
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class SubjectHistory:
    """The newest findings about a subject, open and closed, and the address of all of its events."""

    findings: Sequence[FindingRecord]
    has_more: bool
    events_url: str


def subject_history(request: HttpRequest, cluster: str, subject: str) -> SubjectHistory:
    """Return the findings about `kind:name` in the range of the page; on a Live page, the newest ones."""
    asked = page_context.chrome_of(request).time_range
    wanted = FindingCriteria.between(
        asked.start_ms, asked.end_ms, cluster=cluster, state="all", subject=subject
    )
    findings = finding_queries.findings_before(None, wanted, limit=_SHOWN + 1)
    return SubjectHistory(
        findings[:_SHOWN], len(findings) > _SHOWN, events_url(cluster, subject.partition(":")[2])
    )


def events_url(cluster: str, name: str) -> str:
    """Return the address of the events whose subject contains a name."""
    return f"{reverse('events')}?{urlencode({'cluster': cluster, 'q': name[:LONGEST_SEARCH]})}"
