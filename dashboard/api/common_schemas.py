"""Schemas that several routers share: owners, durations, and blocking transactions."""

from ninja import Schema

from fenceline.series import histograms
from fenceline.series.histograms import Histogram


class OwnerOut(Schema):
    """The owner, from the configuration's `[[owners]]`; fields that it omits are empty."""

    team: str
    contact: str
    runbook: str


def _quantile_ms(times: Histogram, share: float) -> int | None:
    duration_ms = histograms.quantile(times, share)
    return None if duration_ms is None else round(duration_ms)


class Durations(Schema):
    """Durations of commits, accurate to a sixteenth; null without commits."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None

    @staticmethod
    def resolve_count(times: Histogram) -> int:
        return sum(times.values())

    @staticmethod
    def resolve_p50_ms(times: Histogram) -> int | None:
        return _quantile_ms(times, 0.5)

    @staticmethod
    def resolve_p95_ms(times: Histogram) -> int | None:
        return _quantile_ms(times, 0.95)

    @staticmethod
    def resolve_p99_ms(times: Histogram) -> int | None:
        return _quantile_ms(times, 0.99)


class BlockerOut(Schema):
    """A transaction that a group waits for.

    `pending`: the transaction holds the group's own pending commit. `certain` is false for one of several
    candidates.
    """

    transactional_id: str
    producer_id: int | None
    producer_epoch: int | None
    start_offset: int | None
    pending: bool
    certain: bool
