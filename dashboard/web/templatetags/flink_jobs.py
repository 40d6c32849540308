"""Filters and tags for Flink's jobs: badges and addresses."""

from __future__ import annotations

from django import template

from dashboard.labels import engines as engine_labels
from dashboard.labels import flink as flink_labels
from dashboard.web import addresses

register = template.Library()
register.filter("engine_state", engine_labels.engine_state)
register.simple_tag(addresses.flink_job_of, name="flink_job_url")
register.simple_tag(addresses.flink_job_url, name="flink_job_address")


@register.filter
def engine_words(name: str) -> str:
    """Return an engine's name for a count, as text."""
    return name.replace("_", " ")


@register.filter
def checkpoint_word(is_savepoint: bool | None) -> str:
    """Return the word for a checkpoint or a savepoint."""
    return flink_labels.CHECKPOINT_WORDS[is_savepoint]
