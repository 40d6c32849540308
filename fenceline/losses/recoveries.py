"""Episodes: a transaction ended against its producer's wish; who waited, what was lost, when work went on.

An episode opens with the abort, is *released* when readers have passed what it wrote in every partition, and
is over when its id, or its application, has committed again (docs/recoveries.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, NamedTuple

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import ABORTS, TopicPartition, TransitionKind
from fenceline.kafka.clock_skew import LEAST_MS

#: How long after the release somebody may take to commit again.
RESUMES_WITHIN_MS = 600_000
#: An end of the client's own making: it knows, and asks nobody for help, unless others had to wait for it.
_OWN_ENDS = frozenset({TransitionKind.CLIENT_ABORT, TransitionKind.SELF_RECOVERY})

#: What ends a transaction without its records, worst first: the kinds of transition that open an episode.
RecoveryCause = Literal[
    "takeover", "timeout", "admin_fence", "admin_abort", "abort", "client_abort", "self_recovery"
]


class RecoveryOutcome(StrEnum):
    """The status of a recovery, or its end."""

    #: The LSO is still held, or nobody has committed again yet.
    OPEN = "open"
    #: Readers were released and the id, or its application, committed again.
    RESUMED = "resumed"
    #: Readers were released, but for ten minutes nobody committed again.
    NOT_RESUMED = "not_resumed"
    #: It could not be seen to its end: a partition was not seen again for a day.
    UNSEEN = "unseen"
    #: Every topic that it had written to was deleted, re-created or not, before readers could pass.
    TOPIC_DELETED = "topic_deleted"


#: How long a partition may stay unseen before an episode is given up.
_UNSEEN_FOR_MS = 86_400_000


def opens_episode(kind: TransitionKind, *, held: bool, open_ms: int | None, limit_ms: float) -> bool:
    """Whether an end opens an episode: it ended a transaction that `held` partitions, and nobody wished it.

    A client's own abort opens one only where it had held readers back for longer than `limit_ms`.
    """
    if kind not in ABORTS or not held:
        return False
    return kind not in _OWN_ENDS or (open_ms is not None and open_ms > limit_ms)


class LostRecords(NamedTuple):
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
    #: The timestamp of its abort marker, and that of the last marker that readers had to wait for: other
    #: transactions may block the same records. By the clock of the partition's leader; None where unread.
    marker_ms: int | None = None
    unblocked_ms: int | None = None
    #: Whether the topic was deleted since, re-created or not: offsets and records are of that one.
    deleted: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition."""
        return TopicPartition(self.topic, self.partition)


def lost_in(
    where: TopicPartition, batches: Iterable[RecordBatch], producer_id: int, producer_epoch: int
) -> LostRecords | None:
    """Return what an aborted transaction had written, from the headers of the batches around it.

    `producer_epoch` is that of its abort: the broker's own aborts and protocol 2 raise it, so the data may
    have a lower one (KIP-890). Of several transactions that ended alike the last one counts. None where no
    such marker is among the batches.
    """
    lost: LostRecords | None = None
    written: list[RecordBatch] = []
    for batch in batches:
        if batch.producer_id != producer_id or not batch.transactional:
            continue
        if not batch.marker:
            written.append(batch)
            continue
        if batch.marker == "abort" and batch.producer_epoch == producer_epoch:
            lost = _lost(where, written, batch)
        written = []
    return lost


def _lost(where: TopicPartition, written: Sequence[RecordBatch], marker: RecordBatch) -> LostRecords:
    at_ms = None if marker.max_timestamp_ms < 0 else marker.max_timestamp_ms
    if not written:
        return LostRecords(*where, None, None, 0, True, marker_ms=at_ms)
    records = sum(batch.records for batch in written)
    return LostRecords(*where, written[0].first, written[-1].last, records, True, marker_ms=at_ms)


def unblocked_ms(lost: LostRecords, batches: Iterable[RecordBatch], producer_id: int) -> int | None:
    """When the last transaction that blocked these records ended, by the clock of the partition's leader.

    `batches` reach from the first record of the transaction to the last stable offset, and that has passed
    its last record. A transaction blocks them from its own first record to its marker; one whose marker comes
    before any record of it may have begun earlier. None where markers have no timestamp.
    """
    if lost.marker_ms is None or lost.last is None:
        return lost.marker_ms
    begun: dict[int, int] = {}
    known = {producer_id}
    instants = [lost.marker_ms]
    for batch in batches:
        if not batch.transactional or batch.producer_id == producer_id:
            continue
        if not batch.marker:
            begun.setdefault(batch.producer_id, batch.first)
        else:
            unknown = -1 if batch.producer_id not in known else batch.first
            first = begun.pop(batch.producer_id, unknown)
            if first <= lost.last < batch.first:
                instants.append(batch.max_timestamp_ms)
        known.add(batch.producer_id)
    return max(instants)


class WrittenTopic(NamedTuple):
    """A topic that a transaction wrote to: its id when the transaction was open, "" where that is unknown."""

    name: str
    topic_id: str = ""
    #: Whether the topic is known to have had this id since before the transaction began.
    since_begin: bool = False


class TopicNow(NamedTuple):
    """What brokers report of a topic now: its id, that it does not exist, or why it cannot be seen."""

    topic_id: str = ""
    deleted: bool = False
    hidden: str = ""


DELETED, RECREATED = "the topic was deleted", "the topic was deleted and re-created"
_UNPROVEN = "the topic may have been deleted and re-created while the transaction was open"
_HIDDEN = "whether the topic is still the same one cannot be seen: {}"


def deletion_reason(topic: WrittenTopic, now: TopicNow) -> str:
    """Why a topic's records are gone, in words; "" while it is not known to be another topic."""
    if now.deleted:
        return DELETED
    replaced = topic.topic_id and now.topic_id and topic.topic_id != now.topic_id
    return RECREATED if replaced else ""


def same_topic(lost: LostRecords, topic: WrittenTopic, now: TopicNow) -> LostRecords:
    """What was lost in a partition, as sure as it is that the log belongs to the topic that was written to.

    A marker without records proves nothing of a topic that may be a new one: coordinators write markers by
    the topic's name.
    """
    if not lost.sure:
        return lost
    if now.hidden or not now.topic_id:
        return lost._replace(sure=False, note=_HIDDEN.format(now.hidden or "the broker reports no topic ids"))
    if lost.first is None and not topic.since_begin:
        return lost._replace(sure=False, note=_UNPROVEN)
    return lost


class Wait(NamedTuple):
    """A group that was at the LSO which a transaction held, in one partition."""

    group: str
    topic: str
    partition: int
    #: The offset it was at.
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
    #: As `LostRecords` has them.
    marker_ms: int | None = None
    unblocked_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode as far as it was seen. Instants are by our own clock."""

    opened_ms: int
    #: Whether every marker was written, and searched for: only then all that was `held` is known.
    complete: bool
    held: tuple[Held, ...]
    #: As CompleteAbort is stamped: when its end was decided, and its markers began to be written.
    completed_ms: int | None = None
    #: By how much stamps are moved to be by our clock.
    clock_ms: int = 0
    #: Whether every topic that it had written to was deleted since.
    deleted: bool = False
    released_ms: int | None = None
    #: Whether `released_ms` is when we noticed it: readers were released then or before.
    release_noticed: bool = False
    #: Offsets that became readable in all partitions, by the LSO after the release.
    records_released: int | None = None
    resumed_ms: int | None = None
    resumed_by: str = ""
    waited: tuple[Wait, ...] = ()
    closed_ms: int | None = None
    outcome: RecoveryOutcome = RecoveryOutcome.OPEN


@dataclass(frozen=True, slots=True)
class Since:
    """What was observed since a recovery was updated last."""

    #: Partitions that were seen; one that could not be seen is left out.
    ends: dict[TopicPartition, Ends]
    #: Committed offsets of groups that waited, by group and partition.
    committed: dict[tuple[str, TopicPartition], int]
    #: Who committed first after the abort, and when; None while nobody has.
    committer: tuple[str, int] | None


def advance_episode(episode: Episode, since: Since, *, now_ms: int) -> Episode:
    """Return an episode with what was seen since: released, resumed, over."""
    waited = tuple(_read_on(wait, since, now_ms) for wait in episode.waited)
    found = replace(_released(episode, since), waited=waited)
    if found.resumed_ms is None and since.committer is not None:
        found = replace(found, resumed_by=since.committer[0], resumed_ms=since.committer[1])
    return _closed(_in_order(found), now_ms)


def _read_on(wait: Wait, since: Since, now_ms: int) -> Wait:
    at = since.committed.get((wait.group, TopicPartition(wait.topic, wait.partition)))
    if wait.resumed_ms is None and at is not None and at > wait.offset:
        return wait._replace(resumed_ms=now_ms)
    return wait


def _released(episode: Episode, since: Since) -> Episode:
    if episode.released_ms is not None or not episode.complete or episode.deleted:
        return episode
    passed = []
    for held in episode.held:
        if held.where not in since.ends:
            return episode
        ends = since.ends[held.where]
        if ends.lso <= held.last:
            return episode
        passed.append((held, ends))
    released_ms, noticed = _release(episode, passed)
    records = sum(ends.lso - held.first for held, ends in passed)
    return replace(episode, released_ms=released_ms, release_noticed=noticed, records_released=records)


def _release(episode: Episode, passed: Sequence[tuple[Held, Ends]]) -> tuple[int, bool]:
    """When readers were released, and whether that is only when we noticed it.

    Leaders stamp markers. Where that is before the end was decided, or behind when we noticed, by more than
    clocks may differ, a leader's clock is another one and its stamps are no use.
    """
    ended_ms = max(episode.opened_ms, episode.completed_ms or 0)
    noticed_ms = max((ends.changed_ms for _, ends in passed), default=ended_ms)
    stamps = [held.unblocked_ms + episode.clock_ms for held, _ in passed if held.unblocked_ms is not None]
    last_ms = max(stamps, default=ended_ms)
    plausible = ended_ms - LEAST_MS <= last_ms <= max(ended_ms, noticed_ms) + LEAST_MS
    if episode.completed_ms is None or len(stamps) < len(passed) or not plausible:
        return max(ended_ms, noticed_ms), True
    return max(ended_ms, min(last_ms, noticed_ms) if noticed_ms >= ended_ms else last_ms), False


def _in_order(episode: Episode) -> Episode:
    """Put the release before the next commit where no other transaction blocked the same records.

    A coordinator takes no commit of an id before every marker of its last end is replicated; but leaders of
    partitions stamp those by other clocks.
    """
    released_ms, resumed_ms = episode.released_ms, episode.resumed_ms
    if released_ms is None or resumed_ms is None or episode.release_noticed or released_ms <= resumed_ms:
        return episode
    alone = all(held.unblocked_ms == held.marker_ms for held in episode.held)
    ended_ms = max(episode.opened_ms, episode.completed_ms or 0)
    return replace(episode, released_ms=max(ended_ms, resumed_ms)) if alone else episode


def _closed(episode: Episode, now_ms: int) -> Episode:
    if episode.closed_ms is not None:
        return episode
    if episode.released_ms is None and episode.deleted and episode.complete:
        over_ms = max(now_ms, episode.completed_ms or episode.opened_ms)
        return replace(episode, closed_ms=over_ms, outcome=RecoveryOutcome.TOPIC_DELETED)
    if episode.released_ms is None:
        late = now_ms - episode.opened_ms > _UNSEEN_FOR_MS and episode.complete
        return replace(episode, closed_ms=now_ms, outcome=RecoveryOutcome.UNSEEN) if late else episode
    if episode.resumed_ms is not None:
        over_ms = max(episode.released_ms, episode.resumed_ms)
        return replace(episode, closed_ms=over_ms, outcome=RecoveryOutcome.RESUMED)
    if now_ms - episode.released_ms > RESUMES_WITHIN_MS:
        return replace(episode, closed_ms=now_ms, outcome=RecoveryOutcome.NOT_RESUMED)
    return episode
