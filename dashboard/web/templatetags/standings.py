"""How partitions, groups and episodes look on a page: badges, addresses, small lines, whose they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dashboard.evaluation.blocking import Waits
from dashboard.groups import queries as group_queries
from dashboard.labels import status as status_labels
from dashboard.labels.status import StatusLabel
from dashboard.models import FindingRecord, GroupOffset, PartitionRecord, PinRecord, Recovery, Transaction
from dashboard.partitions import queries as partition_queries
from dashboard.system import owners
from dashboard.web import addresses
from dashboard.web.templatetags.fenceline import clip
from fenceline.owners import Owner

register = template.Library()
_HEIGHT = 24
#: Values at their instants, oldest first.
Points = Sequence[tuple[int, int]]


@register.filter
def verdict_look(verdict: str) -> StatusLabel:
    """Return how a partition's verdict reads and looks."""
    return status_labels.VERDICT_LOOKS[verdict]


@register.filter
def status_look(status: str) -> StatusLabel:
    """Return how a group's status reads and looks."""
    return status_labels.STATUS_LOOKS[status]


@register.filter
def waiting_look(waiting: str) -> StatusLabel:
    """Return how a group's standing to a pinned LSO reads and looks."""
    return status_labels.WAITING_LOOKS[waiting]


@register.filter
def outcome_look(outcome: str) -> StatusLabel:
    """Return how an episode's outcome reads and looks."""
    return status_labels.OUTCOME_LOOKS[outcome]


@register.filter
def held(row: PartitionRecord) -> int | None:
    """Return how many offsets lie behind a partition's LSO."""
    return partition_queries.unstable_offsets(row)


@register.filter
def blockers(row: GroupOffset) -> Sequence[group_queries.BlockingTransaction]:
    """Return what a group waits for in a partition."""
    return group_queries.blockers(row)


@register.filter
def of_row(found: Mapping[int, Waits], row: Transaction) -> Waits | None:
    """Return how a transaction stands, None where that was not asked."""
    return found.get(row.pk)


@register.filter
def least(points: Points) -> int | None:
    """Return the smallest value of some points."""
    return min((value for _, value in points), default=None)


@register.filter
def most(points: Points) -> int | None:
    """Return the largest value of some points."""
    return max((value for _, value in points), default=None)


@register.filter
def owned(findings: Sequence[FindingRecord]) -> list[tuple[FindingRecord, Owner | None]]:
    """Return findings, each with the owner of what it is about."""
    found = owners.of_findings(findings)
    return [(each, found[each.pk]) for each in findings]


@register.filter
def id_owner(transactional_id: str) -> Owner | None:
    """Return whose a transactional id is."""
    return owners.of_transaction(transactional_id)


@register.simple_tag
def called(who: Owner) -> SafeString:
    """Return an owner: team, contact, a link to the runbook."""
    contact = format_html(" · {}", who.contact) if who.contact else ""
    runbook = format_html(' · <a href="{}" rel="noreferrer">runbook</a>', who.runbook) if who.runbook else ""
    return format_html("<b>{}</b>{}{}", who.team, contact, runbook)


@register.simple_tag
def blocker_link(blocker: group_queries.BlockingTransaction | PinRecord, cluster: str) -> SafeString:
    """Return the transaction that holds something: its id, else its producer, else a dash that says why."""
    perhaps = "" if getattr(blocker, "certain", True) else SafeString(' <span class="muted">(perhaps)</span>')
    name = blocker.transactional_id
    if name:
        where = addresses.transaction(cluster, name)
        return format_html('<a class="mono" href="{}"><bdi>{}</bdi></a>{}', where, clip(name), perhaps)
    if blocker.producer_id is None:
        return SafeString('<abbr title="which transaction is not known">—</abbr>')
    why = "no transactional id with this producer id is known"
    return format_html('<span title="{}">producer {}</span>{}', why, blocker.producer_id, perhaps)


@register.simple_tag
def partition_url(cluster: str, topic: str, number: int) -> str:
    """Return the address of a partition's page."""
    return addresses.partition(cluster, topic, number)


@register.simple_tag
def group_url(cluster: str, group_id: str) -> str:
    """Return the address of a group's page."""
    return addresses.group(cluster, group_id)


@register.simple_tag
def stream_url(cluster: str, ident: str) -> str:
    """Return the address of a streaming query's page."""
    return addresses.query(cluster, ident)


@register.simple_tag
def id_url(cluster: str, transactional_id: str) -> str:
    """Return the address of a transactional id's page."""
    return addresses.transaction(cluster, transactional_id)


@register.simple_tag
def recovery_url(row: Recovery) -> str:
    """Return the address of an episode's page."""
    return addresses.recovery(row)


@register.simple_tag
def rule_url(name: str) -> str:
    """Return the address of what a rule means."""
    return addresses.rule(name)


@register.simple_tag
def line(points: Points) -> SafeString:
    """Return a small line of values over time, oldest first, from 0 up; figures stand beside it in words."""
    if len(points) < 2:
        return SafeString("")
    begun, span = points[0][0], max(1, points[-1][0] - points[0][0])
    most = max(1, *(value for _, value in points))
    path = "L".join(
        f"{100 * (at_ms - begun) / span:.1f} {_HEIGHT - 1 - (_HEIGHT - 2) * max(0, value) / most:.1f}"
        for at_ms, value in points
    )
    return format_html(
        '<svg class="trend" viewBox="0 0 100 {}" preserveAspectRatio="none" aria-hidden="true">'
        '<path d="M{}"/></svg>',
        _HEIGHT,
        path,
    )
