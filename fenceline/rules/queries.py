"""Rules about streaming queries: restarts, batches of sinks, drivers and unreadable checkpoints."""

from collections.abc import Iterator, Sequence

from fenceline.facts import Finding, Severity
from fenceline.findings import before_loss
from fenceline.formatting import count_noun, format_clock, format_duration, is_are, list_names
from fenceline.limits import Limits
from fenceline.rules.rule import REPORTED_MS, affected_ids, claim
from fenceline.snapshot import Snapshot
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.spark.queries import QueryStatus, SinkBatch
from fenceline.spark.records import Damage, QueryState
from fenceline.spark.safe_to_restart import PreparedBatches, prepared_headline

_LONGEST_EXCEPTION = 300
_BAD = (Severity.CRITICAL, Severity.WARNING)


def restart_fails(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries whose restart would fail, skip batches, or begin with another identity.

    Yields nothing if that is unknown: the unreadable file has its own finding.
    """
    for query in snapshot.queries:
        is_hidden = any(file.damage is Damage.DENIED for file in query.unusable)
        if query.restart_severity not in _BAD or query.is_abandoned(now_ms) or is_hidden:
            continue
        yield claim(
            query.subject,
            query.restart_severity,
            None,
            summary=f"A restart of {query.name} would skip or fail batches",
            evidence=f"A restart {query.restart}",
            next_step=f"Before any restart: {query.remedy or 'see its checkpoint'}.",
        )


def batch_prepared(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries with a batch that is prepared but not committed for `limits.batch_prepared_s`.

    A warning if the coordinators have committed and only the ledger does not record it.
    """
    for query in snapshot.queries:
        waiting = [
            batch
            for batch in query.sink_batches
            if not batch.recorded
            and not batch.aborted
            and batch.waited_ms(now_ms) > limits.batch_prepared_s * 1_000
        ]
        if waiting:
            yield _prepared(query, waiting, now_ms, limits)


def batch_lost(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries with a decided batch whose transactions were aborted before the commit."""
    for query in snapshot.queries:
        lost = [
            batch
            for batch in query.sink_batches
            if batch.aborted and (not batch.recorded or now_ms - batch.decided_ms <= REPORTED_MS)
        ]
        if lost:
            yield _lost(query, lost)


def two_writers(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries with two concurrent drivers."""
    for query in snapshot.queries:
        if query.writers:
            yield claim(
                query.subject,
                Severity.CRITICAL,
                query.writers_ms,
                summary=f"Two drivers write to {query.name}",
                evidence=query.writers,
                next_step=(
                    "Stop one of them: whoever writes a batch's file second fails, and has written to the "
                    "sink before."
                ),
            )


def query_failed(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries that ended with an exception and were not restarted."""
    for query in snapshot.queries:
        if query.state is QueryState.FAILED and not query.is_abandoned(now_ms):
            lines = filter(None, map(str.strip, query.exception.splitlines()))
            reason = next(lines, "it gave no reason")
            yield claim(
                query.subject,
                Severity.CRITICAL,
                query.ended_ms,
                summary=f"{query.name} has failed",
                evidence=reason[:_LONGEST_EXCEPTION],
                next_step=(
                    "Mend the cause, then start it again"
                    + (f": a restart {query.restart}." if query.restart else ".")
                ),
                instance="" if query.ended_ms is None else f"ended {query.ended_ms}",
            )


def batch_slow(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries with a batch that takes `limits.batch_slow_factor` times the 99th percentile.

    Never before `limits.batch_slow_s`. Without a listener, its driver may have stopped instead.
    """
    for query in snapshot.queries:
        batch, since_ms = query.under_way, query.planned_ms
        if batch is None or since_ms is None or query.usual_ms is None or query.alive is False:
            continue
        limit_ms = max(limits.batch_slow_s * 1_000, limits.batch_slow_factor * query.usual_ms)
        if now_ms - since_ms <= limit_ms or query.is_abandoned(now_ms):
            continue
        yield claim(
            query.subject,
            Severity.WARNING,
            since_ms,
            summary=f"Batch {batch} of {query.name} has been in progress since {format_clock(since_ms)}",
            evidence=(
                f"99 of 100 of its batches take no longer than {format_duration(query.usual_ms)}"
                + ("" if query.alive else f"; driver: {_driver(query).status_text}")
            ),
            next_step="Look at the stages of its job in Spark's own pages, and at the sink it writes to.",
            instance=f"batch {batch}",
        )


def checkpoint_unreadable(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries whose checkpoint is unreadable, completely or in part."""
    for query in snapshot.queries:
        files = [file for file in query.unusable if file.damage in (Damage.DENIED, Damage.NEWER)]
        if not (query.error or files) or query.is_abandoned(now_ms):
            continue
        names = [file.path for file in files]
        yield claim(
            query.subject,
            Severity.WARNING,
            None,
            summary=f"The checkpoint of {query.name} cannot be read"
            + (f": {list_names(names)}" if names else ""),
            evidence="; ".join([*filter(None, [query.error]), *(file.detail for file in files[:3])]),
            next_step=(
                "Update Fenceline: that file is of a newer format."
                if any(file.damage is Damage.NEWER for file in files)
                else f"Make {query.checkpoint or 'its folder'} readable; or, if it is to be gone, forget it."
            ),
        )


def _prepared(query: QueryStatus, waiting: Sequence[SinkBatch], now_ms: int, limits: Limits) -> Finding:
    first = waiting[0]
    ids = [name for batch in waiting for name in batch.uncommitted_ids]
    expiries = [
        batch.expires_ms for batch in waiting if batch.expires_ms is not None and batch.uncommitted_ids
    ]
    names = list_names([f"batch {batch.batch_id}" for batch in waiting])
    committed = f"{names} of {query.name} {is_are(len(waiting))} committed"
    prepared = PreparedBatches(
        [batch.batch_id for batch in waiting], first.decided_ms, min(expiries, default=None), True
    )
    summary = prepared_headline(prepared, _driver(query), now_ms=now_ms, of=query.name)
    return claim(
        query.subject,
        _how_bad(query, expiries, now_ms, limits) if ids else Severity.WARNING,
        first.decided_ms,
        summary=summary.removesuffix(".") if ids else f"{committed}, but the ledger does not record it",
        evidence=(
            f"prepared at {format_clock(first.decided_ms)}: {_records(waiting)}, "
            f"{count_noun(len(ids), 'transaction')} not committed; driver: {_driver(query).status_text}"
        ),
        next_step=f"Start {query.name} again: it commits the batch first of all (recoverAndCommit).",
        affected=affected_ids(ids),
        deadline_ms=min(expiries, default=None),
        instance=first.instance,
    )


def _how_bad(query: QueryStatus, expiries: Sequence[int], now_ms: int, limits: Limits) -> Severity:
    """Return CRITICAL without a driver that can commit it; else the severity by its timeout."""
    if not query.alive:
        return Severity.CRITICAL
    return before_loss(min(expiries, default=None), now_ms=now_ms, limits=limits)


def _lost(query: QueryStatus, lost: Sequence[SinkBatch]) -> Finding:
    first = lost[0]
    ids = [name for batch in lost for name in batch.aborted]
    recorded = all(batch.recorded for batch in lost)
    names, verb = list_names([f"batch {batch.batch_id}" for batch in lost]), is_are(len(lost))
    return claim(
        query.subject,
        Severity.WARNING if recorded else Severity.CRITICAL,
        first.decided_ms,
        summary=f"{names} of {query.name} {verb} lost in part: decided, then aborted",
        evidence=(
            f"{list_names(ids)} {'was' if len(ids) == 1 else 'were'} aborted before {names} "
            f"{verb} committed; up to {_records(lost)}" + (f"; {first.input}" if first.input else "")
        ),
        next_step=(
            "The loss is recorded: read that input again if it must not be missing."
            if recorded
            else "Read that input again, and let the sink record the loss: it refuses to go on before."
        ),
        affected=affected_ids(ids),
        instance=first.instance,
    )


def _records(batches: Sequence[SinkBatch]) -> str:
    return count_noun(sum(batch.records for batch in batches), "record")


def _driver(query: QueryStatus) -> Driver:
    if query.driver is not None:
        return query.driver
    known = {True: DriverStatus.RUNNING, False: DriverStatus.ENDED, None: DriverStatus.UNKNOWN}
    return Driver(known[query.alive])
