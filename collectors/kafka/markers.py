"""Read the headers of batches for markers: as they are written, and after the committed offsets of groups.

`MarkerTail` reads the control batches of partitions with an open or recent transaction (READ on the topic
suffices), within a budget of bytes: for a faster partition it skips a stretch, and reports that. It uses
neither the database nor Celery.

`Markers` checks whether any readable record lies between an offset and the last stable offset of its
partition. Offsets also count markers and the records of aborted transactions. librdkafka commits the offset
after the last delivered record, so a group that has read everything stays one marker behind the end.
"""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.fold.marker_history import EndMarker, end_marker
from fenceline.kafka.partitions import Offsets
from transaction_admin.api import Batches, Cost, Unseen
from transaction_admin.kafka_reads import ClusterReads

#: Maximum partitions to follow, and seconds to follow one after its last open transaction.
_MOST_FOLLOWED, _KEPT_S = 2_000, 30.0
#: Seconds to keep the position of an unreadable partition, and seconds until it starts again at its end. An
#: election takes less; a missing right or topic takes longer.
_PATIENCE_S, _RETRY_S = 3.0, 10.0
#: Maximum requests to each leader in one reading, and the longest pause, in seconds, whose budget it may use.
_ROUNDS, _LONGEST_PAUSE_S = 4, 5.0
_TOO_FAST = "more is written there than limits.markers_mb lets us read: ends of transactions were missed"
_TOO_MANY = f"more than {_MOST_FOLLOWED:,} partitions have an open transaction: of this one no end is read"
_OFF = "limits.markers_mb is 0: no end is read"

#: Markers by producer id, in reading order.
MarkersByProducer = Mapping[int, list[EndMarker]]
#: A group that is farther behind has unread records.
MOST_BEHIND = 5_000
#: Maximum new requests per poll.
_AT_ONCE = 50
_MOST_BYTES, _MOST_FETCHES = 128 * 1024, 3
_REMEMBERED = 50_000

#: A committed offset of a partition.
Place = tuple[TopicPartition, int]


class MarkerTail:
    """Follows partitions of one cluster. `megabytes`: the maximum per second from a leader; 0: none.

    Every method raises `AdminUnavailable`.
    """

    def __init__(self, reads: ClusterReads, megabytes: float) -> None:
        self._reads = reads
        self._bytes_per_s = megabytes * 1_000_000
        self._most_followed, self._beyond = (_MOST_FOLLOWED, _TOO_MANY) if megabytes else (0, _OFF)
        self._next: dict[TopicPartition, int] = {}
        #: Instants (monotonic): the partition's last open transaction, the start of its absence, and the next
        #: attempt after giving it up.
        self._wanted: dict[TopicPartition, float] = {}
        self._failing: dict[TopicPartition, float] = {}
        self._retry: dict[TopicPartition, float] = {}
        self._read_at = time.monotonic()
        #: The reasons for missing markers of partitions, at the last reading.
        self.blind: dict[TopicPartition, str] = {}

    @property
    def cost(self) -> Cost:
        return self._reads.cost

    def close(self) -> None:
        self._reads.close()

    def follow(self, partitions: Collection[TopicPartition]) -> None:
        """Follow partitions with an open transaction from now on, and former ones for a while."""
        now = time.monotonic()
        self._wanted |= dict.fromkeys(partitions, now)
        for where in [where for where, wanted in self._wanted.items() if now - wanted > _KEPT_S]:
            self._forget(where)
        due = (
            where for where in partitions if where not in self._next and self._retry.get(where, 0.0) <= now
        )
        added = list(islice(due, max(0, self._most_followed - len(self._next))))
        for where in added:
            self._retry.pop(where, None)
        for where in islice(due, 1):
            self._retry[where], self.blind[where] = now, self._beyond
        if added:
            offsets = self._reads.list_offsets(added)
            self._note_unseen(offsets)
            found = ((where, ends) for where, ends in offsets.items() if not isinstance(ends, Unseen))
            self._next |= {where: ends.high_watermark for where, ends in found}

    def read(self) -> MarkersByProducer:
        """Return the markers since the last reading, by producer id."""
        began = time.monotonic()
        pause_s, self._read_at = min(_LONGEST_PAUSE_S, max(1.0, began - self._read_at)), began
        at_once = int(self._bytes_per_s * pause_s / _ROUNDS)
        found: defaultdict[int, list[EndMarker]] = defaultdict(list)
        ends = dict(self._next)
        for _ in range(_ROUNDS):
            starts = {where: self._next[where] for where in ends}
            answers = self._reads.batch_headers_from(starts, most_bytes=at_once) if starts else {}
            ends = {
                where: answer.end
                for where, answer in answers.items()
                if isinstance(answer, Batches) and self._take(where, answer, found)
            }
            self._note_unseen(answers)
        # A partition that is behind now would be further behind after the next reading.
        self._next |= ends
        unseen = self._retry.keys() | self._failing.keys()
        self.blind = {where: reason for where, reason in self.blind.items() if where in unseen}
        self.blind |= dict.fromkeys(ends, _TOO_FAST)
        return found

    def _take(self, where: TopicPartition, answer: Batches, found: Mapping[int, list[EndMarker]]) -> bool:
        """Keep the markers of one answer; return whether there are more to read."""
        for batch in answer.batches:
            marker = end_marker(where, batch)
            if marker is not None and marker.offset >= self._next[where]:
                found[marker.producer_id].append(marker)
        self._next[where] = answer.next
        return answer.next < answer.end

    def _forget(self, where: TopicPartition) -> None:
        del self._wanted[where]
        for known in self._next, self._failing, self._retry:
            known.pop(where, None)
        self.blind.pop(where, None)

    def _note_unseen(self, answers: Mapping[TopicPartition, object]) -> None:
        """Record unreadable partitions, and give up those that stay unreadable."""
        now = time.monotonic()
        for where, answer in answers.items():
            if not isinstance(answer, Unseen):
                self._failing.pop(where, None)
                continue
            self.blind[where] = answer.reason
            if now - self._failing.setdefault(where, now) > _PATIENCE_S:
                self._next.pop(where, None)
                del self._failing[where]
                self._retry[where] = now + _RETRY_S


def merge_markers(*parts: MarkersByProducer) -> dict[int, list[EndMarker]]:
    merged: defaultdict[int, list[EndMarker]] = defaultdict(list)
    for part in parts:
        for producer_id, markers in part.items():
            merged[producer_id] += markers
    return dict(merged)


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
