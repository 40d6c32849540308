"""The two logs of a checkpoint: the planned and the finished batches."""

from __future__ import annotations

from collections.abc import Sequence

from fenceline.compat import pairwise

OFFSETS, COMMITS = "offsets", "commits"


def is_sparse(planned: Sequence[int], finished: Sequence[int]) -> bool:
    """Return whether two logs have the same holes, as asynchronous progress tracking leaves them.

    It writes both files of a batch or neither. Deleting the same ids from both logs has the same result.
    """
    holes = _holes(planned)
    return bool(holes) and not holes & set(finished)


def _holes(ids: Sequence[int]) -> set[int]:
    """Return the missing ids between the first and the last of about the last two hundred."""
    newest = list(ids[-200:])
    present = set(newest)
    steps = pairwise(newest)
    return {batch_id for low, high in steps for batch_id in range(low + 1, min(high, low + 1_000))} - present
