"""How fast ids use up their epochs: of those that are open at an evaluation, from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dashboard.models import IS_OPEN, Transaction
from fenceline.facts import NOT_REPORTED
from fenceline.kafka.transitions import LAST_EPOCH
from fenceline.limits import Limits
from fenceline.snapshot import Burn

#: Ids that are followed, and how long their pace is measured over.
_MOST_FOLLOWED = 5_000
_LEAST_MS = 120_000
_LONGEST_MS = 600_000
#: One that has not been met for so long is forgotten.
_FORGOTTEN_MS = 3_600_000


class _Followed(NamedTuple):
    """An id as it was met: where its pace is measured from, and what it came to."""

    application: str
    producer_id: int
    epoch: int
    from_ms: int
    met_ms: int
    per_hour: int


class Epochs:
    """The epochs of one cluster's busy ids. An id that is never met open is not busy."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        self._ids: dict[str, _Followed] = {}

    def fastest_burns(self, now_ms: int, limits: Limits) -> Mapping[str, Burn]:
        """Return the fastest id of each application, by what was met before and what is met now."""
        for name, application, producer_id, epoch in self._met():
            before = self._ids.get(name)
            if before is not None or len(self._ids) < _MOST_FOLLOWED:
                self._ids[name] = _followed(before, application, producer_id, epoch, now_ms)
        self._ids = {name: it for name, it in self._ids.items() if now_ms - it.met_ms < _FORGOTTEN_MS}
        return dict(self._fastest(limits))

    def _met(self) -> Iterator[tuple[str, str, int, int]]:
        rows = Transaction.objects.filter(IS_OPEN, cluster_id=self._cluster_id)
        rows = rows.exclude(producer_epoch=NOT_REPORTED)
        columns = rows.values_list("transactional_id", "application", "producer_id", "producer_epoch")
        yield from columns[:_MOST_FOLLOWED].iterator()

    def _fastest(self, limits: Limits) -> Iterator[tuple[str, Burn]]:
        most = limits.rotations_per_day * LAST_EPOCH / 24
        found: dict[str, list[tuple[int, int, str]]] = {}
        for name, it in self._ids.items():
            if it.per_hour > most:
                found.setdefault(it.application, []).append((it.per_hour, it.epoch, name))
        for application, each in found.items():
            per_hour, epoch, name = max(each)
            yield application, Burn(name, epoch, per_hour, len(each))


def _followed(
    before: _Followed | None, application: str, producer_id: int, epoch: int, now_ms: int
) -> _Followed:
    """Measure on from where an id was met first, and anew from here when that is long ago."""
    if before is None:
        return _Followed(application, producer_id, epoch, now_ms, now_ms, 0)
    spent_ms = now_ms - before.from_ms
    if spent_ms < _LEAST_MS:
        return before._replace(met_ms=now_ms)
    # Another producer id: what was left of the old one's epochs, and those of the new one.
    left = 0 if producer_id == before.producer_id else LAST_EPOCH
    per_hour = max(0, left + epoch - before.epoch) * 3_600_000 // spent_ms
    if spent_ms < _LONGEST_MS:
        return before._replace(met_ms=now_ms, per_hour=per_hour)
    return _Followed(application, producer_id, epoch, now_ms, now_ms, per_hour)
