"""Many records of `__consumer_offsets` -> what is worth keeping of them: newest commits, their last instants.

In two steps, so that what the database knows is asked for once and only of what was met: `read_commits` goes
through the records of a partition, `merge_commits` puts what it found onto what was known. Of millions of
commits only the newest of each key, and some before it, are decoded at all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.decode.consumer_offsets import (
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

TOPIC = "__consumer_offsets"
#: How many commits of a key are kept, the newest included.
MOST_COMMITS = 20
#: The least distance between them: twenty commits of a group with ten a second would show little.
_APART_MS = 1_000
#: How many records of a key are used for that, of all that came at once while catching up. The last ones:
#: spread over more time they would suggest that the group commits more seldom than it does.
_LOOKED_AT = MOST_COMMITS + 4
_COMMIT_KEYS = (b"\x00\x00", b"\x00\x01")
_new = tuple.__new__


class CommitKey(NamedTuple):
    """What a commit is for; the group as escaped text."""

    group: str
    topic: str
    partition: int


class KeptCommits(NamedTuple):
    """The newest commit for a place, with the last ones up to it, oldest first."""

    offset: int
    leader_epoch: int | None
    metadata: str
    commit_ms: int
    commits: tuple[Commit, ...]
    log_partition: int
    log_offset: int


class Gone(NamedTuple):
    """The commits for a place were deleted."""

    log_offset: int


class MemberSeen(NamedTuple):
    """A member of a group: the client's own name, its host, and the topics that it subscribes to."""

    client_id: str
    host: str
    #: None where they are not known.
    topics: tuple[str, ...] | None = None


class Joined(NamedTuple):
    """The members of a group, by their ids."""

    members: Mapping[str, MemberSeen]
    log_partition: int
    log_offset: int


#: What happened to a group's members: all of them anew, or one that came or left (None).
_Change = Mapping[str, MemberSeen] | tuple[str, MemberSeen | None]


@dataclass(slots=True)
class CommitBatch:
    """What was read."""

    newest: dict[CommitKey, KeptCommits | Gone] = field(default_factory=dict)
    #: By group, with the offsets of the records that have it.
    changes: dict[str, list[tuple[int, int, _Change]]] = field(default_factory=dict)
    undecoded: Counter[str] = field(default_factory=Counter)
    #: The first record of each reason: where it lies, and what is wrong with it.
    strange: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    #: Number of records by type, of types that contain nothing we show.
    newer: Counter[int] = field(default_factory=Counter)


def read_commits(batch: CommitBatch, partition: int, records: Records) -> None:
    """Go through one partition's records; `seen` grows by what they hold. Never raises."""
    for key, raws in records.items():
        if key[:2] in _COMMIT_KEYS:
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
            kept = _new(KeptCommits, (*values, partition, raw.offset))
            return _take(batch, _new(CommitKey, (decoded.group, decoded.topic, decoded.partition)), kept)
        if isinstance(decoded, OffsetTombstone):
            return _take(batch, CommitKey(*decoded), Gone(raw.offset))
        if isinstance(decoded, Undecoded):
            _count(batch, partition, raw, decoded)


def _take(batch: CommitBatch, where: CommitKey, commits: KeptCommits | Gone) -> None:
    # Two versions of a key name one place: what lies behind is the newer.
    before = batch.newest.get(where)
    if before is None or before.log_offset < commits.log_offset:
        batch.newest[where] = commits


def _last_commits(raws: Sequence[RawRecord]) -> tuple[Commit, ...]:
    """Return the last commits of a key since its last tombstone, thinned."""
    values = [value for value, _, _ in raws]
    if None in values:
        values = values[len(values) - values[::-1].index(None) :]
    known = [value for value in values if value is not None]
    rows = peek_commits(known)
    if rows is None:
        rows = [row for value in known for row in peek_commits([value]) or ()]
    return thin_commits([_new(Commit, row) for row in rows])


def thin_commits(commits: Iterable[Commit]) -> tuple[Commit, ...]:
    """Return the last of some commits, a second apart or more, the newest always; oldest first."""
    kept: list[Commit] = []
    before_ms = last_ms = -_APART_MS
    for commit in commits:
        # The last one gives way until it is far enough from the one before it.
        if len(kept) > 1 and last_ms - before_ms < _APART_MS:
            kept[-1] = commit
        else:
            kept.append(commit)
            before_ms = last_ms
        last_ms = commit[0]
    return tuple(kept[-MOST_COMMITS:])


def pack_commits(commits: Iterable[Commit]) -> str:
    """Return commits as compact JSON text: [[at_ms, offset], …]."""
    return f"[{','.join([f'[{at_ms},{offset}]' for at_ms, offset in commits])}]"


def unpack_commits(text: str) -> tuple[Commit, ...]:
    """Return the commits that `pack_commits` wrote."""
    return tuple([Commit(*row) for row in json.loads(text)]) if text else ()


def _read_other(batch: CommitBatch, partition: int, key: bytes, raws: Sequence[RawRecord]) -> None:
    """Read the newest record of a key that is not a commit's."""
    newest = raws[-1]
    decoded = decode_record(key, newest.value)
    change: _Change
    match decoded:
        case Newer(kind):
            batch.newer[kind] += len(raws)
            return
        case GroupMetadata():
            change = {member.member_id: _member_seen(member) for member in decoded.members}
        case GroupTombstone():
            change = {}
        case GroupMember(_, member_id, member):
            change = member_id, member and _member_seen(member)
        case Undecoded():
            _count(batch, partition, newest, decoded)
            return
        case _:
            return
    batch.changes.setdefault(decoded.group, []).append((partition, newest.offset, change))


def _member_seen(member: Member) -> MemberSeen:
    return MemberSeen(member.client_id, member.host, member.topics)


def pack_members(members: Mapping[str, MemberSeen]) -> str:
    """Return members as compact JSON text: {member id: [client id, host, topics if they are known]}."""
    packed = {
        name: [*member[:2]] if member.topics is None else [*member[:2], member.topics]
        for name, member in members.items()
    }
    return json.dumps(packed, separators=(",", ":"))


def unpack_members(text: str) -> Mapping[str, MemberSeen]:
    """Return the members that `pack_members` wrote."""
    return {
        name: MemberSeen(client_id, host, tuple(topics[0]) if topics else None)
        for name, (client_id, host, *topics) in (json.loads(text) if text else {}).items()
    }


def subscribed_topics(members: Mapping[str, MemberSeen]) -> frozenset[str] | None:
    """Return the topics that the members of a group subscribe to; None where that is not known of one."""
    topics = [member.topics for member in members.values()]
    if not topics or None in topics:
        return None
    return frozenset(topic for member in topics for topic in member or ())


def _count(batch: CommitBatch, partition: int, raw: RawRecord, undecoded: Undecoded) -> None:
    batch.undecoded[undecoded.reason] += 1
    batch.strange.setdefault(undecoded.reason, (partition, raw.offset, undecoded.detail))


def merge_commits(kept: KeptCommits, before: Sequence[Commit]) -> KeptCommits:
    """Add a place's newest commit to its last known commits."""
    if not before:
        return kept
    new = [commit for commit in kept.commits if commit.at_ms >= before[-1].at_ms]
    return kept._replace(commits=thin_commits([*before, *new]))


def merge_members(
    changes: Sequence[tuple[int, int, _Change]], before: Mapping[str, MemberSeen]
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
