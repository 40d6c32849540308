"""Filters and tags for streaming queries and jobs of Flink: badges, addresses, countdowns, chains."""

from typing import Any

from django import template
from django.utils.safestring import SafeString

from dashboard.labels import engines as engine_labels
from dashboard.labels import flink as flink_labels
from dashboard.labels import query as query_labels
from dashboard.labels.status import StatusLabel
from dashboard.web import addresses
from dashboard.web.templatetags.fenceline import time_tag
from fenceline.formatting import format_duration
from fenceline.spark.batch_chain import ChainLink
from fenceline.spark.safe_to_restart import RestartSafety

register = template.Library()
register.filter("chain_label", query_labels.chain_label)
register.filter("guarantee_label", query_labels.guarantee_label)
register.filter("engine_state", engine_labels.engine_state)
register.simple_tag(query_labels.restart_label)
register.simple_tag(addresses.batch_of, name="batch_url")
register.simple_tag(addresses.flink_job_of, name="flink_job_url")
register.simple_tag(addresses.flink_job_url, name="flink_job_address")


@register.filter
def link_tone(link: ChainLink) -> str:
    """Return the tone of a link of a chain."""
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
    """Return the word for a checkpoint or a savepoint."""
    return flink_labels.CHECKPOINT_WORDS[is_savepoint]
