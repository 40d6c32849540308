"""Choose the poll of a checkpoint that counts: a changed restart verdict needs a second poll that agrees.

Two folders cannot be listed at one instant, while Spark writes and purges. A listing that a healthy query
passes through counts at once. Any other listing may be an artefact: it must be repeated with the same result,
which proves that both folders had this content at one instant. If the reported verdict was another one, the
next poll must also show the new verdict. Until then the former checkpoint counts.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from fenceline.spark.records import Broken, Checkpoint
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart

#: The verdicts of a healthy query during each batch.
_PASSING = frozenset({RestartVerdict.CLEAN, RestartVerdict.REPLAY, RestartVerdict.IN_FLIGHT})
_HEALTHY = "healthy"
#: Verdicts that depend on more than the newest files: they persist while the query continues.
_BY_IDENTITY = frozenset({RestartVerdict.IDENTITY_LOST, RestartVerdict.IDENTITY_BROKEN})
_BY_FILE = frozenset({RestartVerdict.UNREADABLE, RestartVerdict.NEWER_FORMAT})
#: Consecutive polls without agreement that make a gap.
_MOST_UNSETTLED = 3


class _Observed(NamedTuple):
    """One listing of a checkpoint. All verdicts of a healthy query are one kind."""

    checkpoint: Checkpoint
    kind: str
    #: The facts behind the verdict.
    basis: object


class Settling:
    """The polls of one checkpoint, and the last valid one."""

    def __init__(self) -> None:
        self._last: _Observed | None = None
        self._proposed = ""
        self._unsettled = 0

    @property
    def is_stale(self) -> bool:
        """Whether the last valid checkpoint is too old to be reported without a gap."""
        return self._last is None or self._unsettled >= _MOST_UNSETTLED

    def settle_checkpoint(
        self, observe: Callable[[], Checkpoint], again: Callable[[], Checkpoint]
    ) -> Checkpoint | None:
        """Return the valid checkpoint; None before the first one.

        `observe` lists the logs, `again` lists everything anew.
        """
        first = self._observed(observe())
        if not self._is_expected(first):
            second = self._observed(again())
            if not self._is_expected(second) and not self._is_confirmed(first, second):
                self._unsettled += 1
                return self._last and self._last.checkpoint
            first = second
        self._last, self._proposed, self._unsettled = first, "", 0
        return first.checkpoint

    def _is_expected(self, observed: _Observed) -> bool:
        """Whether one listing suffices, because it shows a query that makes progress."""
        return observed.kind == (_HEALTHY if self._last is None else self._last.kind)

    def _is_confirmed(self, first: _Observed, second: _Observed) -> bool:
        """Whether two listings agree, and for a changed verdict the poll before agrees, too."""
        if first.kind != second.kind or first.basis != second.basis:
            self._proposed = ""
            return False
        before, self._proposed = self._proposed, second.kind
        return self._last is None or before == second.kind

    def _observed(self, checkpoint: Checkpoint) -> _Observed:
        verdict = predict_restart(checkpoint, alive=None).verdict
        kind = _HEALTHY if verdict in _PASSING else verdict.value
        if self._last is not None and kind == _HEALTHY and _is_older(checkpoint, self._last.checkpoint):
            kind = "put back"
        return _Observed(checkpoint, kind, _basis(checkpoint, verdict))


def _basis(checkpoint: Checkpoint, verdict: RestartVerdict) -> object:
    """Return the parts that must be equal in two listings to prove a verdict."""
    if verdict in _BY_IDENTITY:
        return checkpoint.identity
    newest = checkpoint.identity, checkpoint.last_offsets, checkpoint.previous_offsets, checkpoint.last_commit
    if verdict in _BY_FILE:
        return {(file.path.partition("/")[0], file.damage) for file in newest if isinstance(file, Broken)}
    if verdict is RestartVerdict.HISTORY_GAP:
        # The ids on both sides of each hole, the newest few.
        return [(low, high) for low, high in itertools.pairwise(checkpoint.offsets) if high > low + 1][-8:]
    ends = checkpoint.offsets[-2:], checkpoint.commits[-2:], checkpoint.offsets_ms, checkpoint.commits_ms
    return *ends, checkpoint.has_state, *newest


def _is_older(checkpoint: Checkpoint, last: Checkpoint) -> bool:
    """Whether a log ends earlier than before."""
    logs = (
        (checkpoint.newest_planned, last.newest_planned),
        (checkpoint.newest_finished, last.newest_finished),
    )
    return any((-1 if now is None else now) < (-1 if was is None else was) for now, was in logs)
