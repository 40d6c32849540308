"""Episodes: a transaction ended against its producer's wish; who waited, what was lost, when work went on.

An episode opens with the abort, is *released* when readers have passed what it wrote in every partition, and
is over when its id, or its application, has committed again (design.md §4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from fenceline.batches import Batch
from fenceline.facts import ABORTS, Kind, TopicPartition

#: How long after the release somebody may take to commit again.
RESUMES_WITHIN_MS = 600_000
#: An end of the client's own making: it knows, and asks nobody for help, unless others had to wait for it.
_OWN_ENDS = frozenset({Kind.CLIENT_ABORT, Kind.SELF_RECOVERY})


class Outcome(StrEnum):
    """How an episode stands, or ended."""

    #: The LSO is still held, or nobody has committed again yet.
    OPEN = "open"
    #: Readers were released and the id, or its application, committed again.
    RESUMED = "resumed"
    #: Readers were released, but for ten minutes nobody committed again.
    NOT_RESUMED = "not_resumed"
    #: It could not be seen to its end: a partition is gone, or was not seen again for a day.
    UNSEEN = "unseen"


#: How long a partition may stay unseen before an episode is given up.
_UNSEEN_FOR_MS = 86_400_000


def opens(kind: Kind, *, held: bool, open_ms: int | None, limit_ms: float) -> bool:
    """Whether an end opens an episode: it ended a transaction that `held` partitions, and nobody wished it.

    A client's own abort opens one only where it had held readers back for longer than `limit_ms`.
    """
    if kind not in ABORTS or not held:
        return False
    return kind not in _OWN_ENDS or (open_ms is not None and open_ms > limit_ms)


class Lost(NamedTuple):
    """The records of an aborted transaction in one partition, for reprocessing; offsets inclusive."""

    topic: str
    partition: int
    #: None where it wrote nothing there: coordinators know partitions before their first record.
    first: int | None
    last: int | None
    #: None where only bounds are known.
    records: int | None
    #: Whether the log itself was read from its first to its last record; else these are bounds.
    sure: bool
    #: Why it is not sure, in words; "" where it is.
    note: str = ""

    @property
    def where(self) -> TopicPartition:
        """Return the partition."""
        return TopicPartition(self.topic, self.partition)


def lost_in(
    where: TopicPartition, batches: Iterable[Batch], producer_id: int, producer_epoch: int
) -> Lost | None:
    """Return what an aborted transaction had written, from the headers of the batches around it.

    `producer_epoch` is that of its abort: the broker's own aborts and protocol 2 raise it, so the data may
    have a lower one (KIP-890). Of several transactions that ended alike the last one counts. None where no
    such marker is among the batches.
    """
    found: Lost | None = None
    written: list[Batch] = []
    for batch in batches:
        if batch.producer_id != producer_id or not batch.transactional:
            continue
        if not batch.marker:
            written.append(batch)
            continue
        if batch.marker == "abort" and batch.producer_epoch == producer_epoch:
            found = _lost(where, written)
        written = []
    return found


def _lost(where: TopicPartition, written: Sequence[Batch]) -> Lost:
    if not written:
        return Lost(*where, None, None, 0, True)
    records = sum(batch.records for batch in written)
    return Lost(*where, written[0].first, written[-1].last, records, True)


class Wait(NamedTuple):
    """A group that stood at the LSO which a transaction held, in one partition."""

    group: str
    topic: str
    partition: int
    #: The offset it stood at.
    offset: int
    since_ms: int
    #: When it had read on; None before that.
    resumed_ms: int | None = None


class Ends(NamedTuple):
    """A partition as it was seen last: up to where committed records are readable, and since when we know."""

    lso: int
    changed_ms: int


class Held(NamedTuple):
    """What a transaction held back in one partition: readers are past it when the LSO is past `last`."""

    where: TopicPartition
    #: The LSO that it held: its first record there.
    first: int
    #: Its last known record there, `first` where no more is known.
    last: int


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode as far as it was seen. Instants are by our own clock."""

    opened_ms: int
    #: Whether every marker was written, and looked for: only then all that was `held` is known.
    complete: bool
    held: tuple[Held, ...]
    released_ms: int | None = None
    #: Offsets that became readable in all partitions, by the LSO after the release.
    records_released: int | None = None
    resumed_ms: int | None = None
    resumed_by: str = ""
    waited: tuple[Wait, ...] = ()
    closed_ms: int | None = None
    outcome: Outcome = Outcome.OPEN


@dataclass(frozen=True, slots=True)
class Since:
    """What was seen since an episode was looked at last."""

    #: Partitions that were seen; one that is gone is None, one that could not be seen is left out.
    ends: dict[TopicPartition, Ends | None]
    #: Committed offsets of groups that waited, by group and partition.
    committed: dict[tuple[str, TopicPartition], int]
    #: Who committed first after the abort, and when; None while nobody has.
    committer: tuple[str, int] | None


def progress(episode: Episode, since: Since, *, now_ms: int) -> Episode:
    """Return an episode with what was seen since: released, resumed, over."""
    waited = tuple(_read_on(wait, since, now_ms) for wait in episode.waited)
    found = replace(_released(episode, since), waited=waited)
    if found.resumed_ms is None and since.committer is not None:
        found = replace(found, resumed_by=since.committer[0], resumed_ms=since.committer[1])
    return _closed(found, now_ms)


def _read_on(wait: Wait, since: Since, now_ms: int) -> Wait:
    at = since.committed.get((wait.group, TopicPartition(wait.topic, wait.partition)))
    if wait.resumed_ms is None and at is not None and at > wait.offset:
        return wait._replace(resumed_ms=now_ms)
    return wait


def _released(episode: Episode, since: Since) -> Episode:
    if episode.released_ms is not None or not episode.complete:
        return episode
    seen = []
    for held in episode.held:
        if held.where not in since.ends:
            return episode
        ends = since.ends[held.where]
        if ends is None:
            continue
        if ends.lso <= held.last:
            return episode
        seen.append((ends.changed_ms, ends.lso - held.first))
    released_ms = max([episode.opened_ms, *(at_ms for at_ms, _ in seen)])
    return replace(episode, released_ms=released_ms, records_released=sum(n for _, n in seen))


def _closed(episode: Episode, now_ms: int) -> Episode:
    if episode.closed_ms is not None:
        return episode
    if episode.released_ms is None:
        late = now_ms - episode.opened_ms > _UNSEEN_FOR_MS and episode.complete
        return replace(episode, closed_ms=now_ms, outcome=Outcome.UNSEEN) if late else episode
    if episode.resumed_ms is not None:
        over_ms = max(episode.released_ms, episode.resumed_ms)
        return replace(episode, closed_ms=over_ms, outcome=Outcome.RESUMED)
    if now_ms - episode.released_ms > RESUMES_WITHIN_MS:
        return replace(episode, closed_ms=now_ms, outcome=Outcome.NOT_RESUMED)
    return episode
