"""Shared by both hosts of the sink: parse a user's options, make the coordinator, plan the tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from spark_pipeline.sink import cluster, names
from spark_pipeline.sink.cluster import PartitionCounts
from spark_pipeline.sink.coordinator import Attempt, SinkCoordinator
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.options import PREFIX, Properties, translate_options
from spark_pipeline.sink.patience import PATIENCE_S
from spark_pipeline.sink.startup_checks import SinkSettings
from spark_pipeline.sink.steps import Observer
from spark_pipeline.sink.storage import Storage
from spark_pipeline.sink.task.writer import TaskPlan, admin_for

DEFAULT_PREFIX = "fenceline"


class SinkOptions(NamedTuple):
    """A user's options, checked as far as possible without a cluster."""

    properties: Properties
    topic: str | None = None
    #: None means the query's name.
    prefix: str | None = None
    #: None means the query's own checkpoint.
    checkpoint: str | None = None
    #: None means the brokers' maximum.
    transaction_timeout_ms: int | None = None
    timeout_warning_ratio: float = 0.8
    accept_loss: frozenset[int] = frozenset()
    adopt: bool = False
    on_step: Observer | str | None = None
    include_headers: bool = True
    partition_counts: bool = True
    digests: bool = False
    outage_timeout_ms: int = int(PATIENCE_S * 1_000)

    @property
    def patience_s(self) -> float:
        """Seconds that brokers may be unreachable before a batch fails."""
        return self.outage_timeout_ms / 1_000


def _prefix(value: Any) -> str:
    if reason := names.prefix_refusal(str(value)):
        raise ValueError(f"cannot begin transactional ids: {reason}")
    return str(value)


def _boolean(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\s*\d+\s*", str(value)):
        raise ValueError("must be a whole number")
    return int(value)


def _ratio(value: Any) -> float:
    try:
        ratio = float(value)
    except (TypeError, ValueError):
        ratio = 0.0
    if not 0 < ratio <= 1:
        raise ValueError("must be a number above 0, and 1 at most")
    return ratio


def _batches(value: Any) -> frozenset[int]:
    listed = str(value).split(",") if isinstance(value, (str, int)) else value
    try:
        return frozenset(_whole(item) for item in listed if str(item).strip())
    except (TypeError, ValueError):
        raise ValueError("must be batch ids, 17,18") from None


#: The sink's own options in Spark's spelling -> the field above, and the parser of its value.
OPTIONS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "topic": ("topic", str),
    "prefix": ("prefix", _prefix),
    "checkpointLocation": ("checkpoint", str),
    "transactionTimeoutMs": ("transaction_timeout_ms", _whole),
    "timeoutWarningRatio": ("timeout_warning_ratio", _ratio),
    "acceptLoss": ("accept_loss", _batches),
    "adopt": ("adopt", _boolean),
    "onStep": ("on_step", lambda observer: observer),
    "includeHeaders": ("include_headers", _boolean),
    "partitionCounts": ("partition_counts", _boolean),
    "digests": ("digests", _boolean),
    "outageTimeoutMs": ("outage_timeout_ms", _whole),
}


def _key(name: str) -> str:
    """Return an option's name in one spelling: Spark ignores the case of names."""
    return name.replace("_", "").lower()


_NAMES = {_key(name): name for name in OPTIONS}


def make_options(*given: Mapping[str, Any], without: Collection[str] = ()) -> SinkOptions:
    """Return checked options; names may be in any case, in camelCase or snake_case.

    `without` are options that this host lacks. Raises `Refused` with all mistakes.
    """
    kafka: dict[str, str] = {}
    own: dict[str, Any] = {}
    spellings: dict[str, tuple[str, Any]] = {}
    reasons: list[str] = []
    for name, value in (pair for options in given for pair in options.items()):
        key = name.lower() if name.lower().startswith(PREFIX) else _key(name)
        before, other = spellings.setdefault(key, (name, value))
        if str(other) != str(value):
            # The message omits values: they may be passwords.
            reasons.append(f'options "{before}" and "{name}" are one, and differ: give one of them')
        elif key.startswith(PREFIX):
            kafka[key] = value
        elif key not in _NAMES or _NAMES[key] in without:
            reasons.append(f'option "{name}" is none of the sink\'s: {_nearest(key, without)}')
        else:
            field, read = OPTIONS[_NAMES[key]]
            try:
                own[field] = read(value)
            except ValueError as error:
                reasons.append(f'option "{_NAMES[key]}" is {value!r}: it {error}')
    properties = None
    try:
        properties = translate_options(kafka)
    except Refused as refused:
        reasons.append(str(refused))
    if reasons or properties is None:
        raise Refused("; ".join(reasons))
    return SinkOptions(properties, **own)


def _nearest(key: str, without: Collection[str]) -> str:
    ours = [name for name in _NAMES.values() if name not in without]
    if near := get_close_matches(key, [name.lower() for name in ours], 1):
        return f'did you mean "{_NAMES[near[0]]}"?'
    return f"{', '.join(ours)}, {PREFIX}…"


def chosen_timeout_ms(options: SinkOptions) -> int:
    """Return the transaction timeout; raises `Refused` if the brokers do not allow it.

    It first connects with the client that reports authentication errors at once.
    """
    connection = options.properties.connection
    admin_for(connection, options.patience_s)
    return cluster.timeout_ms(connection, options.transaction_timeout_ms, options.patience_s)


def make_coordinator(
    options: SinkOptions,
    checkpoint: Storage,
    timeout_ms: int,
    *,
    query_name: str,
    speculation: bool = False,
    observer: Observer | None = None,
) -> SinkCoordinator:
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
    """Return a query's name as a prefix of transactional ids."""
    plain = re.sub(r"[^\w.-]+", "-", query_name, flags=re.ASCII).strip("-")
    return plain[: names.MOST_PREFIX_BYTES] or DEFAULT_PREFIX
