"""Reduce many records of `__consumer_offsets` to the newest commits of each key, and the members of groups.

Two steps, so that the database is queried once, for the keys that were read: `read_commits` goes through the
records of a partition, `merge_commits` adds its result to the known commits. Of millions of commits only the
newest of each key, and a few before it, are decoded at all.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.decode.consumer_offsets import (
    COMMIT_KEYS,
    GroupMember,
    GroupMetadata,
    GroupTombstone,
    Member,
    Newer,
    OffsetCommit,
    OffsetTombstone,
    decode_record,
    peek_commits,
)
from fenceline.facts import RawRecord, Records, Undecoded
from fenceline.kafka.groups import Commit
from fenceline.tuples import new_tuple

TOPIC = "__consumer_offsets"
#: Commits kept per key, including the newest.
MOST_COMMITS = 20
#: The minimum distance between kept commits: twenty commits at ten a second would show little.
_APART_MS = 1_000
#: Records of a key used for that, if many arrive at once while catching up. These are the last ones: spread
#: over more time they would suggest that the group commits less often than it does.
_LOOKED_AT = MOST_COMMITS + 4


class CommitKey(NamedTuple):
    """The group (escaped text), topic and partition of a commit."""

    group: str
    topic: str
    partition: int


class KeptCommits(NamedTuple):
    """The newest commit of a key, with the last commits up to it, oldest first."""

    offset: int
    leader_epoch: int | None
    metadata: str
    commit_ms: int
    commits: tuple[Commit, ...]
    log_partition: int
    log_offset: int


class Gone(NamedTuple):
    """The commits of a key were deleted."""

    log_offset: int


class Joined(NamedTuple):
    """The members of a group, by their ids."""

    members: Mapping[str, Member]
    log_partition: int
    log_offset: int


#: A change of a group's members: all members anew, or one that joined or left (None).
_Change = Mapping[str, Member] | tuple[str, Member | None]


@dataclass(slots=True)
class CommitBatch:
    """The commits and member changes read from a partition."""

    newest: dict[CommitKey, KeptCommits | Gone] = field(default_factory=dict)
    #: Keys whose earlier commits were deleted before the newest one.
    begun_anew: set[CommitKey] = field(default_factory=set)
    #: By group: partition and offset of the record, and the change.
    changes: dict[str, list[tuple[int, int, _Change]]] = field(default_factory=dict)
    undecoded: Counter[str] = field(default_factory=Counter)
    #: The first undecodable record of each reason: its partition, its offset, and the error.
    strange: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    #: Number of records by type, for types that are not shown.
    newer: Counter[int] = field(default_factory=Counter)


def read_commits(batch: CommitBatch, partition: int, records: Records) -> None:
    """Read one partition's records into `batch`. Never raises."""
    for key, raws in records.items():
        if key[:2] in COMMIT_KEYS:
            _read_commits(batch, partition, key, raws)
        else:
            _read_other(batch, partition, key, raws)


def _read_commits(batch: CommitBatch, partition: int, key: bytes, raws: Sequence[RawRecord]) -> None:
    for number in range(len(raws) - 1, -1, -1):
        raw = raws[number]
        decoded = decode_record(key, raw.value)
        if isinstance(decoded, OffsetCommit):
            commits = _last_commits(raws[max(0, number + 1 - _LOOKED_AT) : number + 1])
            values = (decoded.offset, decoded.leader_epoch, decoded.metadata, decoded.commit_ms, commits)
            kept = new_tuple(KeptCommits, (*values, partition, raw.offset))
            where = new_tuple(CommitKey, (decoded.group, decoded.topic, decoded.partition))
            if any(value is None for value, _, _ in raws[:number]):
                batch.begun_anew.add(where)
            return _take(batch, where, kept)
        if isinstance(decoded, OffsetTombstone):
            return _take(batch, CommitKey(*decoded), Gone(raw.offset))
        if isinstance(decoded, Undecoded):
            _count(batch, partition, raw, decoded)


def _take(batch: CommitBatch, where: CommitKey, commits: KeptCommits | Gone) -> None:
    # Keys of two versions name one commit key: the later record is the newer commit.
    before = batch.newest.get(where)
    if before is None or before.log_offset < commits.log_offset:
        batch.newest[where] = commits


def _last_commits(raws: Sequence[RawRecord]) -> tuple[Commit, ...]:
    """Return a key's last commits since its last tombstone, thinned."""
    values = [value for value, _, _ in raws]
    if None in values:
        values = values[len(values) - values[::-1].index(None) :]
    known = [value for value in values if value is not None]
    rows = peek_commits(known)
    if rows is None:
        rows = [row for value in known for row in peek_commits([value]) or ()]
    return thin_commits([new_tuple(Commit, row) for row in rows])


def thin_commits(commits: Iterable[Commit]) -> tuple[Commit, ...]:
    """Return the last commits, at least a second apart, always with the newest; oldest first."""
    kept: list[Commit] = []
    before_ms = last_ms = -_APART_MS
    for commit in commits:
        # The last commit is replaced until it is far enough from the one before it.
        if len(kept) > 1 and last_ms - before_ms < _APART_MS:
            kept[-1] = commit
        else:
            kept.append(commit)
            before_ms = last_ms
        last_ms = commit[0]
    return tuple(kept[-MOST_COMMITS:])


def pack_commits(commits: Iterable[Commit]) -> str:
    """Pack commits as compact JSON text: [[at_ms, offset], …]."""
    return f"[{','.join([f'[{at_ms},{offset}]' for at_ms, offset in commits])}]"


def unpack_commits(text: str) -> tuple[Commit, ...]:
    return tuple([Commit(*row) for row in json.loads(text)]) if text else ()


def _read_other(batch: CommitBatch, partition: int, key: bytes, raws: Sequence[RawRecord]) -> None:
    """Read the newest record of a key that is no commit key."""
    newest = raws[-1]
    decoded = decode_record(key, newest.value)
    change: _Change
    match decoded:
        case Newer(kind):
            batch.newer[kind] += len(raws)
            return
        case GroupMetadata():
            change = decoded.members
        case GroupTombstone():
            change = {}
        case GroupMember(_, member_id, member):
            change = member_id, member
        case Undecoded():
            _count(batch, partition, newest, decoded)
            return
        case _:
            return
    batch.changes.setdefault(decoded.group, []).append((partition, newest.offset, change))


def pack_members(members: Mapping[str, Member]) -> str:
    """Pack members as compact JSON text: {member id: [client id, host, topics if known]}."""
    packed = {
        name: [*member[:2]] if member.topics is None else [*member[:2], member.topics]
        for name, member in members.items()
    }
    return json.dumps(packed, separators=(",", ":"))


def unpack_members(text: str) -> Mapping[str, Member]:
    return {
        name: Member(client_id, host, tuple(topics[0]) if topics else None)
        for name, (client_id, host, *topics) in (json.loads(text) if text else {}).items()
    }


def subscribed_topics(members: Mapping[str, Member]) -> frozenset[str] | None:
    """Return the topics that a group's members subscribe to; None if unknown for any member."""
    topics = [member.topics for member in members.values()]
    if not topics or None in topics:
        return None
    return frozenset(topic for member in topics for topic in member or ())


def _count(batch: CommitBatch, partition: int, raw: RawRecord, undecoded: Undecoded) -> None:
    batch.undecoded[undecoded.reason] += 1
    batch.strange.setdefault(undecoded.reason, (partition, raw.offset, undecoded.detail))


def merge_commits(kept: KeptCommits, before: Sequence[Commit]) -> KeptCommits:
    """Add a key's newest commit to its known commits."""
    if not before:
        return kept
    new = [commit for commit in kept.commits if commit.at_ms >= before[-1].at_ms]
    return kept._replace(commits=thin_commits([*before, *new]))


def merge_members(
    changes: Sequence[tuple[int, int, _Change]], before: Mapping[str, Member]
) -> Joined:  # fmt: skip
    """Apply changes of a group's members to the known members, in log order."""
    members = dict(before)
    ordered = sorted(changes, key=lambda change: change[1])
    for _, _, change in ordered:
        if isinstance(change, Mapping):
            members = dict(change)
        elif change[1] is None:
            members.pop(change[0], None)
        else:
            members[change[0]] = change[1]
    return Joined(members, ordered[-1][0], ordered[-1][1])
