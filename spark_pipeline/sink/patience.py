"""Wait for an unreachable cluster: a broker restarts, a coordinator moves, an election runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from spark_pipeline.sink.errors import SinkError
from transaction_admin.api import AdminUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Seconds that brokers may be unreachable before a batch fails: the default of outageTimeoutMs.
PATIENCE_S = 60.0
#: The first and the longest pause between two questions; shorter outages than the third value are not logged.
_PAUSE_S, _LONGEST_PAUSE_S, _SILENT_S = 0.02, 1.0, 1.0


class Outage:
    """One wait of limited length; it is logged once, after a second."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._begun_s = time.monotonic()
        self._pause_s = _PAUSE_S
        self._logged = False

    @property
    def is_over(self) -> bool:
        return self._waited_s > self._patience_s

    @property
    def _waited_s(self) -> float:
        return time.monotonic() - self._begun_s

    def wait(self, reason: object) -> None:
        """Wait until the next question is due."""
        if not self._logged and self._waited_s > _SILENT_S:
            log.warning("waiting up to %g s for the cluster: %s", self._patience_s, reason)
            self._logged = True
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def explain(self, reason: object) -> SinkError:
        """Return the error for a wait without an answer."""
        return SinkError(
            f"{reason}. The cluster was away for longer than {self._patience_s:g} s (outageTimeoutMs): start "
            "the query again when it is back; what was decided is committed then"
        )


def ask_patiently(question: Callable[[], T], patience_s: float) -> T:
    """Return the answer to a question; repeat it while the cluster is unreachable.

    Raises `SinkError` if the cluster stays unreachable, or refuses us permanently.
    """
    outage = Outage(patience_s)
    while True:
        try:
            return question()
        except AdminUnavailable as error:
            if not error.passing:
                raise SinkError(str(error)) from error
            if outage.is_over:
                raise outage.explain(error) from error
            outage.wait(error)
