"""Filters and tags for nouns, actions and alerts: badges, addresses, labels, sparklines and countdowns."""

from collections.abc import Sequence
from typing import Any, Protocol

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dashboard.labels import action as action_labels
from dashboard.labels import alert as alert_labels
from dashboard.labels import flow as flow_labels
from dashboard.labels import query as query_labels
from dashboard.labels.alert import STATED_RULES
from dashboard.labels.status import StatusLabel
from dashboard.web import addresses
from dashboard.web.templatetags.fenceline import clip, time_tag
from fenceline.alerts import redact
from fenceline.alerts.labels import matchers_text
from fenceline.engines import status
from fenceline.formatting import format_duration
from fenceline.kafka import producer_identity
from fenceline.kafka.producer_identity import Engine, ProducerIdentity
from fenceline.owners import Owner
from fenceline.spark.batch_chain import ChainLink
from fenceline.spark.safe_to_restart import RestartSafety

register = template.Library()
register.simple_tag(addresses.record_url, name="record_url")
register.simple_tag(addresses.group_url, name="group_url")
register.simple_tag(addresses.query_url, name="stream_url")
register.simple_tag(addresses.recovery_url, name="recovery_url")
register.simple_tag(addresses.rule_url, name="rule_url")
register.filter("bound_sign", action_labels.bound_sign)
register.filter("channel_label", alert_labels.channel_label)
register.filter("delivery_what", alert_labels.delivery_what)
register.filter("alert_summary", alert_labels.alert_summary)
register.filter("subject_name", alert_labels.subject_name)
register.filter("lasted_ms", alert_labels.lasted_ms)
register.filter("subject_label", addresses.finding_label)
register.filter("matchers", matchers_text)
register.filter("redacted", redact.redact_url)
register.simple_tag(addresses.finding_url, name="subject_url")
register.simple_tag(addresses.action_url, name="action_url")
register.filter("chain_label", query_labels.chain_label)
register.filter("guarantee_label", query_labels.guarantee_label)
register.filter("engine_state", flow_labels.engine_state)
register.simple_tag(query_labels.restart_label)
register.simple_tag(addresses.batch_of, name="batch_url")
register.simple_tag(addresses.flink_job_of, name="flink_job_url")
register.simple_tag(addresses.flink_job_url, name="flink_job_address")
_HEIGHT = 24
#: Values at their instants, oldest first.
Points = Sequence[tuple[int, int]]


@register.filter
def is_stated(rule: str) -> bool:
    """Return whether the headline of a subject's page already states this rule's finding."""
    return rule in STATED_RULES


class LinkedTransaction(Protocol):
    """An open transaction of a partition, or one that blocks a group."""

    @property
    def transactional_id(self) -> str: ...
    @property
    def producer_id(self) -> int | None: ...


@register.filter
def streams_topic(topic: str, producer: ProducerIdentity) -> str:
    """Return the purpose of a topic in Kafka Streams, "" for any other engine."""
    is_streams = producer.engine is Engine.KAFKA_STREAMS
    return producer_identity.streams_topic(producer.application, topic) or "" if is_streams else ""


@register.filter
def debezium_topic(topic: str, topics: status.DebeziumTopics) -> str:
    """Return the purpose of a topic in Debezium, "" for a topic that is not its own."""
    return status.debezium_topic(topics, topic) or ""


@register.simple_tag
def owner_label(who: Owner) -> SafeString:
    """Return an owner: team, contact, and a link to the runbook."""
    contact = format_html(" · {}", who.contact) if who.contact else ""
    runbook = format_html(' · <a href="{}" rel="noreferrer">runbook</a>', who.runbook) if who.runbook else ""
    return format_html("<b>{}</b>{}{}", who.team, contact, runbook)


@register.simple_tag
def id_link(cluster: str, name: str, *, row: bool = False, mono: bool = True) -> SafeString:
    """Return the link to the page of a transactional id; `row`: it opens its row of a table."""
    return _link(addresses.transaction_url(cluster, name), clip(name), row=row, mono=mono)


@register.simple_tag
def partition_link(
    cluster: str, topic: str, number: int, *, row: bool = False, mono: bool = True
) -> SafeString:
    return _link(addresses.partition_url(cluster, topic, number), f"{topic}-{number}", row=row, mono=mono)


@register.simple_tag
def group_link(cluster: str, group_id: str, *, row: bool = False, mono: bool = False) -> SafeString:
    return _link(addresses.group_url(cluster, group_id), clip(group_id) or "(empty id)", row=row, mono=mono)


@register.simple_tag
def query_link(query: Any, *, row: bool = False, mono: bool = False) -> SafeString:
    return _link(addresses.query_of(query), clip(str(query)), row=row, mono=mono)


def _link(url: str, words: str, *, row: bool, mono: bool) -> SafeString:
    classes, opens = (SafeString(' class="mono"') if mono else ""), (" data-row" if row else "")
    return format_html('<a{} href="{}"{}><bdi>{}</bdi></a>', classes, url, opens, words)


@register.simple_tag
def blocker_link(blocker: LinkedTransaction, cluster: str) -> SafeString:
    """Return the blocking transaction: its id, else its producer, else an explained dash."""
    certain = getattr(blocker, "certain", True)
    perhaps = SafeString("" if certain else ' <span class="muted">(possibly)</span>')
    name = blocker.transactional_id
    if name:
        return id_link(cluster, name) + perhaps
    if blocker.producer_id is None:
        return SafeString('<abbr title="which transaction is not known">—</abbr>')
    why = "no transactional id with this producer id is known"
    return format_html('<span title="{}">producer {}</span>{}', why, blocker.producer_id, perhaps)


@register.simple_tag
def sparkline(points: Points) -> SafeString:
    """Return a small line of values over time, oldest first, from 0 up; the text beside it has figures."""
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


@register.filter
def kind_means(kind: str) -> str:
    return alert_labels.CHANNEL_KINDS.get(kind, "")


@register.filter
def origin_words(origin: str) -> str:
    return alert_labels.ORIGINS[origin]


@register.filter
def link_tone(link: ChainLink) -> str:
    return query_labels.LINK_TONES[link.state]


@register.filter
def safe_label(safe: RestartSafety) -> StatusLabel:
    """Return the label of whether a query is safe to restart by a graceful stop: yes, no, or unknown."""
    return _answer_label(safe.safe, safe.sentence)


@register.filter
def kill_label(safe: RestartSafety) -> StatusLabel:
    """Return the label of whether its driver may be killed: yes, no, or unknown."""
    return _answer_label(safe.kill, safe.kill_reason or "a restart repeats and loses nothing")


def _answer_label(answer: bool | None, means: str) -> StatusLabel:
    words = {True: ("yes", "ok"), False: ("no", "critical"), None: ("unknown", "unknown")}
    return StatusLabel(*words[answer], means)


@register.simple_tag(takes_context=True)
def countdown(context: dict[str, Any], ms: int | None, passed: str = "passed") -> SafeString | str:
    """Return a `<time>` with the time left until an instant; the browser keeps it ticking."""
    if ms is None:
        return "—"
    left = ms - context["now_ms"]
    return time_tag(ms, "until", passed, format_duration(left // 1000 * 1000) if left >= 1000 else passed)


@register.filter
def checkpoint_word(is_savepoint: bool | None) -> str:
    return flow_labels.CHECKPOINT_WORDS[is_savepoint]
