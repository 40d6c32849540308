"""What both hosts of the sink have in common: from its options to a coordinator and the plan of its tasks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from spark_pipeline.sink import cluster, names
from spark_pipeline.sink.coordinator import Attempt, SinkCoordinator
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.options import Properties, translate_options
from spark_pipeline.sink.partition_records import PartitionCounts
from spark_pipeline.sink.patience import PATIENCE_S
from spark_pipeline.sink.startup_checks import SinkSettings
from spark_pipeline.sink.steps import Observer
from spark_pipeline.sink.stores.storage import Storage
from spark_pipeline.sink.writer import TaskPlan, admin_for

DEFAULT_PREFIX = "fenceline"


class SinkOptions(NamedTuple):
    """What a user chooses, checked as far as it can be without a cluster."""

    properties: Properties
    topic: str | None
    prefix: str | None
    transaction_timeout_ms: int | None
    timeout_warning_ratio: float
    accept_loss: frozenset[int]
    adopt: bool
    partition_counts: bool = True
    digests: bool = False
    patience_s: float = PATIENCE_S


def make_options(
    kafka: Mapping[str, str],
    topic: str | None,
    prefix: str | None,
    transaction_timeout_ms: int | None,
    timeout_warning_ratio: float,
    accept_loss: Collection[int],
    adopt: bool,
    *,
    partition_counts: bool = True,
    digests: bool = False,
) -> SinkOptions:
    """Return checked options; raises `Refused` with what is wrong."""
    if prefix is not None and (reason := names.prefix_refusal(prefix)):
        raise Refused(f"option prefix cannot begin transactional ids: {reason}")
    if not 0 < timeout_warning_ratio <= 1:
        raise Refused(f"timeout_warning_ratio is {timeout_warning_ratio}: it must be above 0 and at most 1")
    properties = translate_options(kafka)
    return SinkOptions(
        properties,
        topic,
        prefix,
        transaction_timeout_ms,
        timeout_warning_ratio,
        frozenset(accept_loss),
        adopt,
        partition_counts,
        digests,
    )


def chosen_timeout_ms(options: SinkOptions) -> int:
    """Return the timeout of transactions; raises `Refused` for one that the brokers do not take."""
    return cluster.timeout_ms(options.properties.connection, options.transaction_timeout_ms)


def make_coordinator(
    options: SinkOptions,
    checkpoint: Storage,
    timeout_ms: int,
    *,
    query_name: str,
    speculation: bool = False,
    observer: Observer | None = None,
) -> SinkCoordinator:
    """Return the sink's driver side."""
    settings = SinkSettings(
        options.prefix or _as_prefix(query_name),
        options.prefix is not None,
        timeout_ms,
        options.timeout_warning_ratio,
        options.accept_loss,
        options.adopt,
        speculation,
        patience_s=options.patience_s,
    )
    connection = options.properties.connection
    counts = PartitionCounts(connection) if options.partition_counts else None
    return SinkCoordinator(settings, checkpoint, admin_for(connection, options.patience_s), observer, counts)


def task_plan(options: SinkOptions, attempt: Attempt) -> TaskPlan:
    """Return what the tasks of an attempt are given."""
    return TaskPlan(
        options.properties,
        attempt.stem,
        attempt.generation,
        attempt.lease,
        attempt.timeout_ms,
        options.topic,
        options.patience_s,
    )


def _as_prefix(query_name: str) -> str:
    """Return a query's name as the beginning of transactional ids."""
    plain = re.sub(r"[^\w.-]+", "-", query_name, flags=re.ASCII).strip("-")
    return plain[: names.MOST_PREFIX_BYTES] or DEFAULT_PREFIX
