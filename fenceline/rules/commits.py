"""The rule about commits that lost records before their decision, although the producer got no error."""

from collections.abc import Iterator, Sequence

from fenceline.facts import Finding, Severity
from fenceline.formatting import count_noun, format_clock, list_names
from fenceline.grouping import grouped
from fenceline.limits import Limits
from fenceline.losses.aborted_commits import lost_words
from fenceline.losses.recoveries import LostRecords
from fenceline.rules.rule import claim
from fenceline.snapshot import AbortedCommitFacts, Snapshot

_REWRITE = (
    "Write the lost records again: their offsets are among the affected offsets of the incident, and a "
    "read_uncommitted consumer still gets them there. The rest of the transaction is committed: do not write "
    "that again."
)
_FROM_SOURCE = "Records of a deleted topic are only in the producer's own source."


def aborted_under_commit(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield ids whose committed transaction lost written records; the newest of each."""
    by_id = grouped((commits.transactional_id, commits) for commits in snapshot.aborted_commits)
    for name, (newest, *earlier) in by_id.items():
        yield claim(
            subject=f"transaction:{name}",
            severity=Severity.CRITICAL,
            since_ms=newest.committed_ms,
            summary=f"{name}: {_cause(newest.lost)} before the commit, {lost_words(newest.lost)} lost",
            evidence="; ".join(_evidence(newest, len(earlier))),
            next_step=_next_step(newest.lost),
            instance=newest.instance,
        )


def _cause(lost: Sequence[LostRecords]) -> str:
    causes = []
    if not all(records.deleted for records in lost):
        causes.append("aborted by a marker")
    if any(records.deleted for records in lost):
        causes.append("its topic was deleted")
    return " and ".join(causes)


def _evidence(commits: AbortedCommitFacts, earlier: int) -> Iterator[str]:
    yield f"its coordinator committed it at {format_clock(commits.committed_ms)}, without an error"
    marked = [_offsets(records) for records in commits.lost if not records.deleted]
    if marked:
        yield f"the log has an abort marker of its producer before the commit marker: {list_names(marked)}"
    deleted = [f"{_offsets(records)} ({records.note})" for records in commits.lost if records.deleted]
    if deleted:
        yield f"gone with their topics while it was open: {list_names(deleted)}"
    if earlier:
        yield f"{count_noun(earlier, 'earlier commit')} of this id lost records within a day"


def _offsets(records: LostRecords) -> str:
    first, last = records.first or 0, records.last or 0
    through = f"offsets {first:,} to {last:,}" if last > first else f"offset {first:,}"
    if records.records is None:
        return f"{records.topic_partition}: {through} at most"
    return f"{records.topic_partition}: {count_noun(records.records, 'record')}, {through}"


def _next_step(lost: Sequence[LostRecords]) -> str:
    steps = [] if all(records.deleted for records in lost) else [_REWRITE]
    steps += [_FROM_SOURCE] if any(records.deleted for records in lost) else []
    return " ".join([*steps, "Find out who did this while the producer was alive."])
