"""What the absence of an internal topic proves: nothing, until who would need it is seen to be nobody."""

from __future__ import annotations

from django.conf import settings

from dashboard.models import Collector
from fenceline.findings.visibility import expected_ms


def absence_doubt(topic: str, poller: Collector | None, unseen: str, now_ms: int) -> str | None:
    """Return why a topic that is missing may be needed; "" where nobody needs it, None before that is known.

    `poller` lists who would need it and has found nobody; `unseen` is what its last list left out.
    """
    if poller is None:
        return None
    if reason := poller.error or unseen:
        return (
            f"{topic} does not exist here as far as can be seen, and nor can be seen who needs it: {reason}"
        )
    late_ms = expected_ms(settings.FENCELINE.limits, reads_on=False)
    is_new = poller.seen_through_ms is not None and now_ms - poller.seen_through_ms <= late_ms
    return "" if is_new else None
