"""The limits of one transactional id: its timeout, the figures that need it, and when Kafka forgets it."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.engines.flink_jobs import FlinkDecision, find_job
from dashboard.flow.preflight import job_setup, query_setup
from dashboard.models import Transaction
from dashboard.streaming.batches import SinkWriter
from dashboard.transactions.coordinators import broker_setup
from fenceline.facts import NOT_FROM_LOG, Transition
from fenceline.preflight.limits import IdLimit, forgotten_ms, id_limits
from fenceline.preflight.setup import decided_spans


@dataclass(frozen=True, slots=True)
class IdBounds:
    """The limits of an id, in ms; unknown ones are None."""

    limits: Sequence[IdLimit]
    #: The idle time after which its coordinator forgets it, and the instant; not while it is open.
    expiration_ms: int | None
    forgotten_ms: int | None


def id_bounds(
    row: Transaction, recent: Sequence[Transition], written: SinkWriter | None, flink: FlinkDecision | None
) -> IdBounds:
    """Return the limits of an id, with those of its query's sink or its Flink job."""
    brokers = broker_setup(row.cluster_id)
    job = find_job(row.cluster.name, flink.hold.job) if flink else None
    limits = id_limits(
        row.timeout_ms,
        brokers,
        decided_spans(recent),
        query_setup(written.query) if written else None,
        job_setup(job) if job else None,
    )
    if row.log_offset == NOT_FROM_LOG:
        # A list does not report the last use of an id.
        return IdBounds(limits, None, None)
    forgotten = forgotten_ms(row.updated_ms, brokers, is_open=row.is_open)
    return IdBounds(limits, brokers.id_expiration_ms, forgotten)
