"""Recent interruptions of producers by other clients, for the first page."""

from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import Count, Q

from dashboard.models import TransitionRecord
from dashboard.runtime import visibility
from fenceline.facts import Confidence, TransitionKind

#: Kinds of interruptions, worst first.
_KINDS = (TransitionKind.TAKEOVER, TransitionKind.ADMIN_FENCE, TransitionKind.TIMEOUT)


class Interruptions(NamedTuple):
    """Interruptions of one kind."""

    kind: TransitionKind
    number: int
    #: The number of certain or probable ones.
    sure: int


def recent_interruptions(cluster: str, *, since_ms: int) -> Sequence[Interruptions]:
    """Return the takeovers, outside fences and timeouts since an instant, without our own actions."""
    rows = TransitionRecord.objects.filter(
        cluster__in=[of.pk for of in visibility.clusters_named(cluster)],
        kind__in=[kind.value for kind in _KINDS],
        at_ms__gte=since_ms,
        action=None,
    )
    sure = Count("pk", filter=~Q(confidence=Confidence.AMBIGUOUS.value))
    counted = {
        kind: counts for kind, *counts in rows.values_list("kind").annotate(number=Count("pk"), sure=sure)
    }
    return [Interruptions(kind, *counted[kind.value]) for kind in _KINDS if kind.value in counted]
