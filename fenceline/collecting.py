"""What collectors hand on of engines, and since when collectors themselves have been on time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from fenceline.connect.connectors import ConnectorStatus
from fenceline.flink.job_status import FlinkRun
from fenceline.limits import Limits
from fenceline.snapshot import CollectorStatus

#: What was known before a pause of the rules that is longer than this counts no more: a collector may have
#: been late meanwhile.
_FORGOTTEN_AFTER_MS = 10_000


class EngineKind(StrEnum):
    """What answers at the REST API of an engine."""

    FLINK = "flink"
    CONNECT = "connect"


class EngineAnswer(NamedTuple):
    """What one API reported."""

    url: str
    version: str
    runs: Sequence[FlinkRun] = ()
    connectors: Sequence[ConnectorStatus] = ()


class Punctual:
    """Follows the collectors of one cluster from tick to tick."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}
        self._at_ms: int | None = None

    def on_time_since(
        self, statuses: Iterable[CollectorStatus], *, now_ms: int, limits: Limits
    ) -> Mapping[str, int]:
        """Return since when each collector that is on time now has been so at every tick, by its name."""
        paused = self._at_ms is None or not 0 <= now_ms - self._at_ms <= _FORGOTTEN_AFTER_MS
        known = {} if paused else self._since
        self._at_ms = now_ms
        self._since = {
            each.name: known.get(each.name, now_ms)
            for each in statuses
            if not each.is_in_trouble(now_ms, limits)
        }
        return self._since
