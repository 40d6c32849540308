"""Find the effects of an action: LSOs that moved, groups and queries that resumed, the recovery.

Offsets are read from the cluster; everything else comes from collectors' rows. Each effect is reported once.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import F

from dashboard.actions import store as action_store
from dashboard.actions.connections import ClusterConnections
from dashboard.actions.results import SubjectOutcome
from dashboard.models import Action, Batch, Group, GroupOffset, Query, Recovery
from fenceline.decode.checkpoint import parse_positions
from fenceline.facts import TopicPartition
from fenceline.formatting import format_duration
from fenceline.kafka.partitions import Offsets
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.plans.plan import Act, Plan, SubjectPlan

#: An entry of `Action.follow_up`.
Entry = dict[str, Any]
LSO, GROUP, QUERY, RECOVERY, RESUMED, BATCH, STANDS = (
    "lso", "group", "query", "recovery", "resumed", "batch", "lso_stands",
)  # fmt: skip


class _Done(NamedTuple):
    subject: SubjectPlan
    ended_ms: int


class Following:
    """The expected effects of one action, and those already reported."""

    def __init__(self, row: Action, now_ms: int) -> None:
        self._row, self._now_ms = row, now_ms
        self._plan = action_store.plan_of(row)
        self._reported = {(entry["kind"], entry["of"]) for entry in row.follow_up}
        self._done = list(_done(self._plan, row.results))
        #: The LSO of each partition when the action was planned.
        self._held = {
            TopicPartition(topic, number): lso
            for done in self._done
            for topic, number, lso, *_ in done.subject.held
            if lso is not None
        }

    def new_entries(self, connections: ClusterConnections) -> list[Entry]:
        """Return the new effects. Raises `AdminUnavailable`."""
        return [*self._lsos(connections), *self._waiting(), *self._episodes(), *self._batches()]

    def is_over(self, news: Collection[Entry]) -> bool:
        """Whether every expected effect has been reported."""
        reported = self._reported | {(entry["kind"], entry["of"]) for entry in news}
        return reported >= set(self._expected())

    def last_words(self) -> list[Entry]:
        """Return an entry for each LSO that has not moved."""
        return [
            self._entry(STANDS, str(where), f"LSO of {where} still stands at {lso:,}")
            for where, lso in self._held.items()
            if (LSO, str(where)) not in self._reported
        ]

    def _expected(self) -> Iterator[tuple[str, str]]:
        yield from ((LSO, str(where)) for where in self._held)
        yield from ((self._kind(name), name) for name in self._names())
        for done in self._done:
            if self._plan.act is Act.FENCE:
                name = done.subject.seen["transactional_id"]
                yield from ((RECOVERY, name), (RESUMED, name))
            elif "batch_id" in done.subject.seen:
                yield BATCH, done.subject.title

    def _lsos(self, connections: ClusterConnections) -> Iterator[Entry]:
        wanted = [where for where in self._held if (LSO, str(where)) not in self._reported]
        if not wanted:
            return
        for where, offsets in connections.reads.list_offsets(wanted).items():
            before = self._held[where]
            if isinstance(offsets, Offsets) and offsets.lso > before:
                words = f"LSO of {where} moved {before:,} → {offsets.lso:,}"
                yield {**self._entry(LSO, str(where), words), "before": before, "after": offsets.lso}

    def _waiting(self) -> Iterator[Entry]:
        for name in self._names():
            kind = self._kind(name)
            if (kind, name) in self._reported:
                continue
            at_ms = self._group_ms(name) if kind == GROUP else self._query_ms(name)
            if at_ms is not None:
                after_ms = at_ms - min(done.ended_ms for done in self._done)
                yield {
                    **self._entry(kind, name, f"{kind} {name} resumed after {format_duration(after_ms)}"),
                    "after_ms": after_ms,
                }

    def _names(self) -> Sequence[str]:
        return list(dict.fromkeys(name for done in self._done for name in done.subject.waiting))

    def _kind(self, name: str) -> str:
        of_cluster = Group.objects.filter(cluster_id=self._row.cluster_id, group_id=name)
        return GROUP if of_cluster.exists() else QUERY

    def _group_ms(self, name: str) -> int | None:
        """Return when a group read past an LSO that blocked it, or None."""
        offsets = GroupOffset.objects.filter(
            group__cluster_id=self._row.cluster_id,
            group__group_id=name,
            topic__in={where.topic for where in self._held},
        )
        passed = [
            row.commit_ms
            for row in offsets
            if row.offset is not None
            and row.offset > self._held.get(TopicPartition(row.topic, row.partition), row.offset)
        ]
        return self._at(passed)

    def _query_ms(self, name: str) -> int | None:
        """Return when a query read past an LSO that blocked it, or None."""
        newest = Batch.objects.filter(
            query__cluster_id=self._row.cluster_id, batch_id=F("query__finished")
        ).select_related("query")
        named = (batch for batch in newest if str(batch.query) == name)
        return self._at([batch.committed_ms for batch in named if self._is_past(batch)])

    def _is_past(self, batch: Batch) -> bool:
        read = {where: at for _, raw in batch.offsets for where, at in (parse_positions(raw) or {}).items()}
        return any(
            at > self._held[where]
            for place, at in read.items()
            if (where := TopicPartition(*place)) in self._held
        )

    def _at(self, passed: Sequence[int | None]) -> int | None:
        """Return the first instant (by other clocks) after the action's end, or now."""
        if not passed:
            return None
        ended_ms = min(done.ended_ms for done in self._done)
        return min((at for at in passed if at is not None and ended_ms <= at), default=self._now_ms)

    def _episodes(self) -> Iterator[Entry]:
        """Yield each fenced id's recovery, and its resumption; begun and opened are by the same clock."""
        if self._plan.act is not Act.FENCE:
            return
        for done in self._done:
            name, started_ms = done.subject.seen["transactional_id"], done.subject.seen["started_ms"]
            recoveries = Recovery.objects.filter(
                cluster_id=self._row.cluster_id,
                key=key_of_name(name),
                opened_ms__gte=started_ms or 0,
            ).order_by("opened_ms", "pk")
            row = recoveries.first()
            if row is None:
                continue
            if (RECOVERY, name) not in self._reported:
                words = f"recovery episode {row.pk} of {name}: {row.cause}"
                yield {**self._entry(RECOVERY, name, words), "recovery": row.pk}
            if row.resumed_ms is not None and (RESUMED, name) not in self._reported:
                after_ms = max(0, row.resumed_ms - row.opened_ms)
                words = f"{row.resumed_by or name} committed again after {format_duration(after_ms)}"
                yield {**self._entry(RESUMED, name, words), "after_ms": after_ms}

    def _batches(self) -> Iterator[Entry]:
        for done in self._done:
            facts, title = done.subject.seen, done.subject.title
            if "batch_id" not in facts or (BATCH, title) in self._reported:
                continue
            finished = Query.objects.filter(
                cluster_id=self._row.cluster_id, ident=facts["query"], finished__gte=facts["batch_id"]
            )
            if finished.exists():
                yield self._entry(BATCH, title, f"{title}: its query has finished it, and goes on")

    def _entry(self, kind: str, of: str, words: str) -> Entry:
        return {"kind": kind, "of": of, "words": words, "at_ms": self._now_ms}


def _done(plan: Plan, results: Sequence[Mapping[str, Any]]) -> Iterator[_Done]:
    for subject, result in zip(plan.subjects, results, strict=False):
        if result["outcome"] == SubjectOutcome.DONE:
            yield _Done(subject, result["ended_ms"])
