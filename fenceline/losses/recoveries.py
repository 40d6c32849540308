"""Episodes: a transaction ended against its producer's wish; the waiting readers, the lost records, the
return to work.

An episode opens with the abort. It is *released* when readers have passed the transaction's records in every
partition, and over when its id, or its application, has committed again (docs/recoveries.md).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, NamedTuple

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import ABORTS, TopicPartition, TransitionKind
from fenceline.kafka.coordinator import LEAST_MS

#: How long after the release a commit may take.
RESUMES_WITHIN_MS = 600_000
#: A client's own end: the client knows, and needs no help, unless other readers had to wait.
_OWN_ENDS = frozenset({TransitionKind.CLIENT_ABORT, TransitionKind.SELF_RECOVERY})

#: Ends of a transaction without its records, worst first: the kinds of transition that open an episode.
RecoveryCause = Literal[
    "takeover", "timeout", "admin_fence", "admin_abort", "abort", "client_abort", "self_recovery"
]


class RecoveryOutcome(StrEnum):
    #: The LSO is still blocked, or no producer has committed again yet.
    OPEN = "open"
    #: Readers were released and the id, or its application, committed again.
    RESUMED = "resumed"
    #: Readers were released, but no producer committed again for ten minutes.
    NOT_RESUMED = "not_resumed"
    #: It could not be observed to its end: a partition was unreadable for a day.
    UNSEEN = "unseen"
    #: Every topic of the transaction was deleted before readers could pass, re-created or not.
    TOPIC_DELETED = "topic_deleted"


#: How long a partition may stay unreadable before an episode is given up.
_UNSEEN_FOR_MS = 86_400_000


def opens_episode(kind: TransitionKind, *, held: bool, open_ms: int | None, limit_ms: float) -> bool:
    """Whether an end opens an episode: it ended a transaction that `held` partitions, against its producer's
    wish.

    A client's own abort opens one only if the transaction had blocked readers for longer than `limit_ms`.
    """
    if kind not in ABORTS or not held:
        return False
    return kind not in _OWN_ENDS or (open_ms is not None and open_ms > limit_ms)


class LostRecords(NamedTuple):
    """The records of an aborted transaction in one partition, for reprocessing; offsets inclusive."""

    topic: str
    partition: int
    #: None if it wrote no record there: coordinators know partitions before their first record.
    first: int | None
    last: int | None
    #: None if only bounds are known.
    records: int | None
    #: Whether the log was read from the first to the last record; else these are bounds.
    sure: bool
    #: Why it is uncertain, in words; "" if it is certain.
    note: str = ""
    #: The timestamp of its abort marker, and of the last marker that readers waited for: other transactions
    #: may block the same records. By the clock of the partition's leader; None if not read.
    marker_ms: int | None = None
    unblocked_ms: int | None = None
    #: Whether the topic was deleted since, re-created or not: offsets and records belong to the deleted one.
    deleted: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def lost_in(
    where: TopicPartition, batches: Iterable[RecordBatch], producer_id: int, producer_epoch: int
) -> LostRecords | None:
    """Return an aborted transaction's records, from the headers of the batches around it.

    `producer_epoch` is that of its abort: the broker's own aborts and protocol 2 raise it, so the data may
    have a lower one (KIP-890). Among several transactions with the same end the last one counts. None if the
    batches contain no such marker.
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
    """Return the end of the last transaction that blocked these records, by the clock of the partition's
    leader.

    `batches` reach from the first record of the transaction to the last stable offset, which has passed its
    last record. A transaction blocks them from its own first record to its marker; one with a marker but no
    record in them may have begun earlier. None if markers have no timestamp.
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
    """A topic that a transaction wrote to, and its id during the transaction, "" if unknown."""

    name: str
    topic_id: str = ""
    #: Whether the topic is known to have had this id since before the transaction began.
    since_begin: bool = False


class TopicNow(NamedTuple):
    """A topic's present report from brokers: its id, its absence, or why it cannot be read."""

    topic_id: str = ""
    deleted: bool = False
    hidden: str = ""


DELETED, RECREATED = "the topic was deleted", "the topic was deleted and re-created"
_UNPROVEN = "the topic may have been deleted and re-created while the transaction was open"
_HIDDEN = "whether the topic is still the same one cannot be seen: {}"


def deletion_reason(topic: WrittenTopic, now: TopicNow) -> str:
    """Return why a topic's records are gone, in words; "" unless it is known to be another topic."""
    if now.deleted:
        return DELETED
    replaced = topic.topic_id and now.topic_id and topic.topic_id != now.topic_id
    return RECREATED if replaced else ""


def same_topic(lost: LostRecords, topic: WrittenTopic, now: TopicNow) -> LostRecords:
    """Return the lost records of a partition, as certain as the identity of the written topic and the log.

    A marker without records proves nothing about a possibly new topic: coordinators write markers by the
    topic's name.
    """
    if not lost.sure:
        return lost
    if now.hidden or not now.topic_id:
        return lost._replace(sure=False, note=_HIDDEN.format(now.hidden or "the broker reports no topic ids"))
    if lost.first is None and not topic.since_begin:
        return lost._replace(sure=False, note=_UNPROVEN)
    return lost


class Wait(NamedTuple):
    """A group that waited at a blocked LSO in one partition."""

    group: str
    topic: str
    partition: int
    #: Its offset.
    offset: int
    since_ms: int
    #: When it continued reading; None before that.
    resumed_ms: int | None = None


class Ends(NamedTuple):
    """A partition's last state: the end of readable committed records, and since when it is known."""

    lso: int
    changed_ms: int


class Held(NamedTuple):
    """Records that a transaction blocked in one partition: readers pass them when the LSO passes `last`."""

    where: TopicPartition
    #: The LSO that it blocked: its first record there.
    first: int
    #: Its last known record there, else `first`.
    last: int
    #: The fields of `LostRecords`.
    marker_ms: int | None = None
    unblocked_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode, as far as it was observed. Instants are by our own clock."""

    opened_ms: int
    #: Whether every marker was written, and searched for: only then all of `held` is known.
    complete: bool
    held: tuple[Held, ...]
    #: The stamp of CompleteAbort: when the end was decided, and markers began to be written.
    completed_ms: int | None = None
    #: The correction of stamps to our clock.
    clock_ms: int = 0
    #: Whether every topic that it wrote to was deleted since.
    deleted: bool = False
    released_ms: int | None = None
    #: Whether `released_ms` is the instant of our observation: readers were released then or earlier.
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
    """The observations since a recovery's last update."""

    #: Observed partitions; an unreadable one is omitted.
    ends: dict[TopicPartition, Ends]
    #: Committed offsets of waiting groups, by group and partition.
    committed: dict[tuple[str, TopicPartition], int]
    #: The first committer after the abort, and the instant; None before that.
    committer: tuple[str, int] | None


def advance_episode(episode: Episode, since: Since, *, now_ms: int) -> Episode:
    """Return an episode with new observations: released, resumed, over."""
    waited = tuple(_read_on(wait, since, now_ms) for wait in episode.waited)
    advanced = replace(_released(episode, since), waited=waited)
    if advanced.resumed_ms is None and since.committer is not None:
        advanced = replace(advanced, resumed_by=since.committer[0], resumed_ms=since.committer[1])
    return _closed(_in_order(advanced), now_ms)


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
    """Return when readers were released, and whether that is only the instant of our observation.

    Leaders stamp markers. If a stamp is earlier than the decided end, or later than our observation, by more
    than clocks may differ, the leader's clock is wrong and its stamps are useless.
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
    """Put the release before the next commit if no other transaction blocked the same records.

    A coordinator accepts no commit of an id before every marker of its last end is replicated; but leaders of
    partitions stamp those with other clocks.
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
