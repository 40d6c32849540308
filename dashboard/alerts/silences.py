"""Check, save, preview and end silences. Pages and API write through this module."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import transaction

from dashboard.alerts import queries as alert_queries
from dashboard.alerts import validation
from dashboard.alerts.deliver import notify_pages
from dashboard.alerts.validation import compile_pattern
from dashboard.models import Alert, Silence
from dashboard.system import audit
from dashboard.system.audit import AuditedSubject, Event
from fenceline.alerts.labels import MatcherSet, matchers_text
from fenceline.formatting import format_duration

#: A longer silence should be a change of the rule.
LONGEST_MS = 366 * 86_400_000
#: A start up to this far in the past means now.
_PAST_MS = 60_000

Matchers = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class SilenceDraft:
    """A requested silence; its parsers raise ValueError with a readable message.

    Instants in milliseconds: without a start it begins now; an end takes precedence over `lasts_ms`.
    """

    matchers: Callable[[], Matchers]
    reason: str
    starts: Callable[[], int | None]
    ends: Callable[[], int | None]
    lasts_ms: int | None = None


def create_silence(draft: SilenceDraft, *, by: str, now_ms: int) -> Silence:
    """Create a silence; raises `validation.Unfit` with errors by field: matchers, starts, ends, reason."""
    checks = validation.Checks()
    none: list[list[str]] = []
    matchers = checks.check_field(
        "matchers", lambda: list(map(list, fit_matchers(draft.matchers(), none_allowed=False))), none
    )
    reason = checks.check_field(
        "reason", lambda: validation.required_text(draft.reason, "The reason", validation.LONGEST_REASON), ""
    )
    starts_ms = checks.check_field("starts", lambda: _starts(draft, now_ms), now_ms)
    ends_ms = checks.check_field("ends", lambda: _ends(draft, starts_ms, now_ms), now_ms)
    checks.raise_errors()
    row = Silence(matchers=matchers, starts_ms=starts_ms, ends_ms=ends_ms, reason=reason, created_by=by)
    with transaction.atomic():
        row.save()
        instants = {"starts": _at(row.starts_ms), "ends": _at(row.ends_ms)}
        made = {"matchers": matchers_text(row.matchers), "reason": row.reason, **instants}
        audit.record_change(Event.SILENCE_CREATED, _subject(row), audit.field_changes({}, made, {}))
    notify_pages()
    return row


def end_silence(row: Silence, *, by: str, now_ms: int) -> bool:
    """End a silence now; return False if it had ended already."""
    with transaction.atomic():
        ended = Silence.objects.filter(pk=row.pk, ends_ms__gt=now_ms).update(ends_ms=now_ms, ended_by=by)
        if ended:
            audit.record_change(Event.SILENCE_ENDED, _subject(row), {"ends": (_at(row.ends_ms), _at(now_ms))})
    if ended:
        notify_pages()
    return bool(ended)


def _subject(row: Silence) -> AuditedSubject:
    return AuditedSubject("silence", row.pk, matchers_text(row.matchers))


def _at(instant_ms: int) -> datetime:
    return datetime.fromtimestamp(instant_ms / 1_000, UTC)


def matching_alerts(matchers: Matchers, among: Sequence[Alert] | None = None) -> Sequence[Alert]:
    """Return the firing and pending alerts that matchers match now, among rows read before if given."""
    rows = alert_queries.active_labels() if among is None else among
    wanted = MatcherSet(matchers, compile_pattern)
    return [row for row in rows if wanted.matches(row.labels)]


def fit_matchers(matchers: Matchers, *, none_allowed: bool) -> Matchers:
    """Return usable matchers; raises ValueError for invalid matchers, and for matchers of every alert."""
    for name, _, value in matchers:
        validation.check_label_name(name)
        if "\0" in value:
            raise ValueError(f"The value of {name} has a NUL, which no label has: remove it.")
    fit = MatcherSet(matchers, compile_pattern)
    if fit.wrong:
        raise ValueError(fit.wrong)
    if none_allowed:
        return matchers
    if not matchers:
        raise ValueError('Say which alerts: at least one matcher, as in alertname="open_too_long".')
    if fit.matches({}):
        raise ValueError(
            "These match every alert, also one without any label: add a matcher that needs a value,"
            ' as in cluster="prod".'
        )
    return matchers


def _starts(draft: SilenceDraft, now_ms: int) -> int:
    starts_ms = draft.starts()
    if starts_ms is None:
        return now_ms
    if starts_ms < now_ms - _PAST_MS:
        raise ValueError("The start is in the past: leave it empty to begin now.")
    if starts_ms > now_ms + LONGEST_MS:
        raise ValueError("The start is more than a year ahead: make it when it is nearer.")
    return max(now_ms, starts_ms)


def _ends(draft: SilenceDraft, starts_ms: int, now_ms: int) -> int:
    ends_ms = draft.ends()
    if ends_ms is None and draft.lasts_ms is not None:
        ends_ms = starts_ms + draft.lasts_ms
    if ends_ms is None:
        raise ValueError("Say for how long, or until when.")
    if ends_ms <= now_ms:
        raise ValueError("The end is in the past: nothing would be silenced.")
    if ends_ms <= starts_ms:
        raise ValueError("The end is not after the start.")
    if ends_ms - starts_ms > LONGEST_MS:
        raise ValueError(
            f"It may last {format_duration(LONGEST_MS)} at most: make it shorter, or change the rule."
        )
    return ends_ms
