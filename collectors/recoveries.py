"""Finds what an aborted transaction had written: the batches around its markers, read header by header.

It knows neither the database nor Celery. Whoever drives it says where to look, and keeps what is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fenceline.batches import Batch
from fenceline.facts import TopicPartition
from fenceline.recoveries import Lost, lost_in
from transaction_admin.api import Unseen
from transaction_admin.reads import ClusterReads

#: Bytes of one request, and how many of them a partition is worth.
_BYTES_AT_ONCE = 1024 * 1024
_MOST_REQUESTS = 16


class Search(NamedTuple):
    """Where to look for an aborted transaction, and for which."""

    where: TopicPartition
    #: No record of it lies before this offset.
    start: int
    producer_id: int
    #: As its abort has it.
    producer_epoch: int
    #: Whether no other abort of this producer has the same epoch: then the first one found is it.
    alone: bool


def find_lost(reads: ClusterReads, search: Search) -> Lost:
    """Return what the transaction had written in a partition; bounds and a note where that cannot be told.

    Raises `CannotAdminister` where no broker can be asked at all.
    """
    seen: list[Batch] = []
    at = search.start
    for _ in range(_MOST_REQUESTS):
        answer = reads.batches(search.where, at, most_bytes=_BYTES_AT_ONCE)
        if isinstance(answer, Unseen):
            return _bounds(search, None, answer.reason)
        seen += answer.batches
        found = _found(search, seen)
        if found is not None and (search.alone or answer.next >= answer.end):
            return found
        if answer.next >= answer.end or answer.next <= at:
            return _bounds(search, answer.end, "its abort marker is not in the log any more")
        at = answer.next
    return _found(search, seen) or _bounds(search, None, "too much was written around it to read it all")


def _found(search: Search, seen: Sequence[Batch]) -> Lost | None:
    return lost_in(search.where, seen, search.producer_id, search.producer_epoch)


def _bounds(search: Search, end: int | None, note: str) -> Lost:
    last = None if end is None else max(search.start, end - 1)
    return Lost(*search.where, search.start, last, None, False, note)
