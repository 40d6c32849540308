"""The limits of one transactional id: its timeout and its needs, and when Kafka forgets it. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fenceline.facts import NOT_REPORTED, TWO_PHASE_COMMIT_TIMEOUT_MS
from fenceline.preflight.checks import CHECKPOINTS, NEARLY
from fenceline.preflight.setup import BrokerSetup, JobSetup, QuerySetup


class IdLimit(NamedTuple):
    """One figure to compare with a timeout, in ms."""

    words: str
    value_ms: int
    #: Its percentage of the timeout; None without a timeout to compare.
    share: float | None = None

    @property
    def is_near(self) -> bool:
        """Whether it has nearly used up the timeout, or exceeded it."""
        return self.share is not None and self.share >= 100 * NEARLY


def id_limits(
    timeout_ms: int,
    brokers: BrokerSetup,
    spans: Sequence[int],
    query: QuerySetup | None = None,
    job: JobSetup | None = None,
) -> Sequence[IdLimit]:
    """Return the timeout of an id, and the known figures that need it, longest transaction first.

    `spans` are the durations of its transactions that its producer ended. A two-phase commit never times out.
    """
    if timeout_ms in (NOT_REPORTED, TWO_PHASE_COMMIT_TIMEOUT_MS) or timeout_ms <= 0:
        return ()
    most_ms = brokers.max_timeout_ms
    return [
        IdLimit("transaction.timeout.ms", timeout_ms),
        *([IdLimit("transaction.max.timeout.ms of the brokers", most_ms)] if most_ms else []),
        *(
            IdLimit(words, needed_ms, 100 * needed_ms / timeout_ms)
            for words, needed_ms in _needs(spans, query, job)
            if needed_ms is not None
        ),
    ]


def _needs(
    spans: Sequence[int], query: QuerySetup | None, job: JobSetup | None
) -> Iterator[tuple[str, int | None]]:
    yield "longest of its last transactions", max(spans, default=None)
    if query is not None:
        yield f"longest of the last batches of {query.name}", query.longest_batch_ms
    if job is not None and job.longest_interval_ms is not None:
        yield f"two checkpoint intervals of {job.name}", job.longest_interval_ms * CHECKPOINTS


def forgotten_ms(updated_ms: int, brokers: BrokerSetup, *, is_open: bool) -> int | None:
    """Return when its coordinator forgets an idle id; None while it is open, or if unknown."""
    if is_open or brokers.id_expiration_ms is None:
        return None
    return updated_ms + brokers.id_expiration_ms
