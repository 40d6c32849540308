"""Changes of channels, silences, tokens, users and roles, and sign-ins, each with its user."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from dashboard.models import AuditEntry
from dashboard.system import access, audit
from dashboard.web import action_buttons, page_context
from dashboard.web.forms import lists as list_forms
from dashboard.web.forms import time_ranges
from dashboard.web.forms.lists import Filters
from dashboard.web.markdown import plain_number
from dashboard.web.per_request import derive_once, now_ms
from dashboard.web.rendering import forbidden_page, list_view, signed_in
from dashboard.web.routes import PageRoute
from fenceline.alerts.redact import HIDDEN
from fenceline.formatting import count_noun

_ROWS = 50


class AuditListQuery(list_forms.ListByRow, audit.AuditCriteria):
    """The query string of the list."""


@signed_in
def entry_list(request: HttpRequest) -> HttpResponse:
    """Show the newest audit rows that the query string asks for, to administrators."""
    refused = access.missing_role(action_buttons.request_actor(request), access.AUDIT)
    return forbidden_page(request, refused) if refused else _entry_list(request)


def _entries(request: HttpRequest, wanted: AuditListQuery) -> tuple[Sequence[AuditEntry], int | None]:
    return derive_once(
        request,
        "audit entries",
        lambda: audit.newest_entries(wanted, before=wanted.before, limit=_ROWS),
    )


def _moves(request: HttpRequest, wanted: AuditListQuery) -> object:
    return [(entry.pk, entry.count) for entry in _entries(request, wanted)[0]]


@list_view("audit/list", AuditListQuery, depends_on=_moves, collected=False)
def _entry_list(request: HttpRequest, wanted: AuditListQuery) -> Mapping[str, Any]:
    entries, more = _entries(request, wanted)
    filters = Filters(request.GET, wanted)
    words = {event.value: str(event.label) for event in AuditEntry.Event}
    families = list(audit.FAMILIES)
    return {
        "rows": [_line(entry) for entry in entries],
        "next": more,
        "filters": [filters.row("event", families, every="any event", menus=[filters.menu("event", words)])],
        "headline": _headline(request, len(entries), more=more is not None),
        "sign_ins_d": plain_number(settings.FENCELINE.retention.sign_ins_d),
    }


def _headline(request: HttpRequest, number: int, *, more: bool) -> str:
    asked = page_context.chrome_of(request).time_range
    if not asked.is_live:
        return time_ranges.range_headline(number, "event", asked, more=more)
    now = datetime.fromtimestamp(now_ms(request) / 1_000, UTC)
    changes, failed = audit.counts_since(now - timedelta(days=1))
    return f"{count_noun(changes, 'change')} and {count_noun(failed, 'failed sign-in')} in the last 24 h"


def _line(row: AuditEntry) -> Mapping[str, Any]:
    words = dict(AuditEntry.Event.choices)
    changes = list(_changes(row.changes, is_new=row.event.endswith(".created")))
    return {"of": row, "words": str(words.get(row.event, row.event)), "changes": changes}


def _changes(changes: Mapping[str, Sequence[Any]], *, is_new: bool) -> Iterator[tuple[str, str, str]]:
    """Yield changed fields, before and after: added and removed names of a list, no value of a secret.

    Before is "" if after is enough.
    """
    for field, (before, after) in changes.items():
        words = field.replace("_", " ")
        if HIDDEN in (before, after):
            yield words, "", "changed" if before and after else "set" if after else "removed"
        elif isinstance(before, list) and isinstance(after, list):
            yield words, "", _moved(before, after)
        else:
            yield words, "" if is_new else _text(before), _text(after)


def _moved(before: Sequence[Any], after: Sequence[Any]) -> str:
    parts = {
        "added": [str(value) for value in after if value not in before],
        "removed": [str(value) for value in before if value not in after],
    }
    return "; ".join(f"{words} {', '.join(names)}" for words, names in parts.items() if names)


def _text(value: Any) -> str:
    if value in (None, "", []):
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


ROUTES = (
    PageRoute(
        "audit",
        "audit",
        entry_list,
        parent="actions",
        searched="names and addresses",
        has_files=True,
        is_ranged=True,
        plural="changes and sign-ins",
    ),
)
