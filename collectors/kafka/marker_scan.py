"""Check whether any readable record lies between an offset and the last stable offset of its partition.

Offsets also count markers and the records of aborted transactions. librdkafka commits the offset after the
last delivered record, so a group that has read everything stays one marker behind the end.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import Offsets
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads

#: A group that is farther behind has unread records.
MOST_BEHIND = 5_000
#: Maximum new requests per poll.
_AT_ONCE = 50
_MOST_BYTES, _MOST_FETCHES = 128 * 1024, 3
_REMEMBERED = 50_000

Place = tuple[TopicPartition, int]


class Markers:
    """Reads the headers of batches after committed offsets, and remembers the result."""

    def __init__(self, reads: ClusterReads) -> None:
        self._reads = reads
        #: Committed offset -> the LSO up to which there is no readable record; None if there is one.
        self._known: OrderedDict[Place, int | None] = OrderedDict()
        self._lsos: dict[TopicPartition, int] = {}

    def find_only_markers(
        self, places: Iterable[Place], offsets: Mapping[TopicPartition, Offsets]
    ) -> frozenset[Place]:
        """Return the committed offsets that only markers and aborted records separate from the LSO."""
        self._forget_replaced(offsets)
        found, asked = set(), 0
        for place in places:
            where, offset = place
            lso, first = offsets[where].lso, max(offset, offsets[where].log_start)
            if not 0 < lso - first <= MOST_BEHIND:
                continue
            known = where, first
            if self._known.get(known, -1) not in (None, lso) and asked < _AT_ONCE:
                asked += 1
                self._remember(known, lso if self._nothing(where, first, lso) else None)
            if self._known.get(known) == lso:
                found.add(place)
        return frozenset(found)

    def _forget_replaced(self, offsets: Mapping[TopicPartition, Offsets]) -> None:
        """Forget partitions whose LSO decreased: their topic was re-created, or their log was truncated."""
        replaced = {where for where, ends in offsets.items() if ends.lso < self._lsos.get(where, 0)}
        self._lsos |= {where: ends.lso for where, ends in offsets.items()}
        if replaced:
            kept = ((place, lso) for place, lso in self._known.items() if place[0] not in replaced)
            self._known = OrderedDict(kept)

    def _remember(self, place: Place, lso: int | None) -> None:
        self._known[place] = lso
        self._known.move_to_end(place)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _nothing(self, where: TopicPartition, offset: int, lso: int) -> bool:
        at, batches = offset, list[RecordBatch]()
        for _ in range(_MOST_FETCHES):
            answer = self._reads.batch_headers(where, at, most_bytes=_MOST_BYTES)
            if isinstance(answer, Unseen):
                return False
            batches += answer.batches
            verdict = nothing_to_read(batches, offset, lso)
            if verdict is not None:
                return verdict
            if answer.next == at:
                return False
            at = answer.next
        return False


def nothing_to_read(batches: Iterable[RecordBatch], offset: int, lso: int) -> bool | None:
    """Return whether there is no readable record from `offset` up to `lso`; None if more batches are needed.

    A transaction's outcome is in its marker, which may lie after the LSO.
    """
    undecided: set[int] = set()
    reached = offset
    for batch in batches:
        reached = max(reached, batch.last + 1)
        if batch.marker:
            if batch.marker == "commit" and batch.producer_id in undecided:
                return False
            undecided.discard(batch.producer_id)
        elif batch.last >= offset and batch.first < lso and batch.records:
            if not batch.transactional:
                return False
            undecided.add(batch.producer_id)
    return True if reached >= lso and not undecided else None
