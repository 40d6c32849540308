"""Whether a query is safe to restart now, gracefully or by killing its driver.

A graceful stop lets the batch in progress finish; a kill may hit any point of a batch. The answer is *no*
only if stopping now loses or repeats something that waiting would not, or if the query could not start again.
Passing states within a batch (a batch in progress, open transactions, a prepared batch that a driver commits)
change no answer: a script that asks twice gets the same answer twice. The whole table is in docs/queries.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.facts import Severity
from fenceline.formatting import format_clock, is_are, list_names, upper_first
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.spark.queries import MissingTopic, missing_clauses

#: The kind of sink in `Query.sink` that has a ledger.
EXACTLY_ONCE = "exactly_once"
#: Seconds until the next question if waiting may change the answer.
RETRY_S = 5


class RestartSafety(NamedTuple):
    """Whether a query is safe to restart, with the reasons, the decisive one first."""

    #: By a graceful stop; None if too little is known.
    safe: bool | None
    #: One sentence.
    sentence: str
    reasons: tuple[str, ...] = ()
    #: Whether its driver may be killed as well, and the reason against it.
    kill: bool | None = None
    kill_reason: str = ""
    #: When to ask again; None if it is safe, and if waiting changes nothing.
    retry_after_s: int | None = None
    #: For a prepared batch that nobody commits: the batch, its driver, and until when a restart finishes it.
    headline: str = ""
    #: Prepared decisions that are not carried out.
    prepared: int = 0
    #: The first timeout among their transactions, by its coordinator's clock.
    expires_ms: int | None = None
    #: Open transactional ids of the query's sink, as escaped text.
    open_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedBatches:
    """A query's batches with a decision to commit that is not carried out, ascending."""

    batches: Sequence[int] = ()
    #: The oldest decision, by the driver's clock.
    since_ms: int | None = None
    #: The first timeout among transactions that are not known to be committed; None without an open one.
    expires_ms: int | None = None
    #: Whether that lasts longer than a commit, by our own polls of the ledger.
    overdue: bool = False

    def __str__(self) -> str:
        return list_names([f"batch {batch_id:,}" for batch_id in self.batches])

    @property
    def waiting_text(self) -> str:
        """Return since when they wait, to follow their names: `has been prepared since …`."""
        has, is_ = ("has", "is") if len(self.batches) == 1 else ("have", "are")
        since = "" if self.since_ms is None else f" since {format_clock(self.since_ms)}"
        return f"{has} been prepared{since} but {is_} not committed"

    def is_orphaned(self, driver: Driver) -> bool:
        """Return whether the driver that prepared them has stopped.

        Its end was reported; or its heartbeat is missing, and it has not committed in time.
        """
        if not self.batches:
            return False
        silent = driver.status is DriverStatus.NO_HEARTBEAT
        return driver.status is DriverStatus.ENDED or (silent and self.overdue)


@dataclass(frozen=True, slots=True)
class RestartFacts:
    name: str
    sink: str
    driver: Driver
    #: Why its checkpoint has been unreadable for longer than a poll; "" if it is readable.
    unseen: str = ""
    #: The newest planned, unfinished batch; None between batches.
    batch_in_progress: int | None = None
    prepared: PreparedBatches = PreparedBatches()
    open_ids: Sequence[str] = ()
    #: The effect of a restart, to follow "a restart", and its severity; None if it is harmless.
    restart: str = ""
    severity: Severity | None = None
    #: Topics that it reads or writes, and that were deleted or are missing in the cluster.
    missing: Sequence[MissingTopic] = ()
    missing_outputs: Sequence[str] = ()


class _Obstacle(NamedTuple):
    """A reason against a restart, or an unknown that may hide one."""

    safe: bool | None
    reason: str
    retry_after_s: int | None


def restart_safety(query: RestartFacts, *, now_ms: int) -> RestartSafety:
    obstacles = _worst_first(_obstacles(query, now_ms))
    kill = obstacles or _worst_first(_kill_obstacles(query))
    deciding = obstacles[0] if obstacles else None
    safe = deciding.safe if deciding else True
    return RestartSafety(
        safe,
        _sentence(query, safe, deciding.reason if deciding else ""),
        (*(obstacle.reason for obstacle in obstacles), *_notes(query)),
        kill[0].safe if kill else True,
        kill[0].reason if kill else "",
        deciding.retry_after_s if deciding else None,
        prepared_headline(query.prepared, query.driver, now_ms=now_ms),
        len(query.prepared.batches),
        query.prepared.expires_ms,
        tuple(query.open_ids),
    )


def cluster_restart_safety(cluster: str, verdicts: Iterable[tuple[str, RestartSafety]]) -> RestartSafety:
    """Judge whether all named queries of a cluster are safe to restart now."""
    queries = list(verdicts)
    against = [(name, verdict) for name, verdict in queries if verdict.safe is False]
    unknown = [(name, verdict) for name, verdict in queries if verdict.safe is None]
    waits = [verdict.retry_after_s for _, verdict in (*against, *unknown)]
    kills = [(name, verdict) for kill in (False, None) for name, verdict in queries if verdict.kill is kill]
    safe = False if against else None if unknown else True
    return RestartSafety(
        safe,
        _together(cluster, safe, [name for name, _ in against or unknown], len(queries)),
        tuple(f"{name}: {verdict.sentence}" for name, verdict in (*against, *unknown)),
        kills[0][1].kill if kills else True,
        f"{kills[0][0]}: {kills[0][1].kill_reason}" if kills else "",
        None if None in waits else max((wait_s for wait_s in waits if wait_s is not None), default=None),
        next((verdict.headline for _, verdict in queries if verdict.headline), ""),
        sum(verdict.prepared for _, verdict in queries),
        min((verdict.expires_ms for _, verdict in queries if verdict.expires_ms is not None), default=None),
        tuple(name for _, verdict in queries for name in verdict.open_ids),
    )


def prepared_headline(prepared: PreparedBatches, driver: Driver, *, now_ms: int, of: str = "") -> str:
    """Return the first fact about a prepared batch that nobody commits; "" while a driver may commit it.

    `of` is the query's name, for a sentence outside of the query's page.
    """
    orphaned = prepared.is_orphaned(driver)
    if not orphaned and not (prepared.batches and prepared.overdue):
        return ""
    batches = f"{prepared}{of and f' of {of}'}"
    if orphaned:
        verb = is_are(len(prepared.batches))
        fact = f"{batches} {verb} prepared and the driver is gone ({driver.status_text})"
    else:
        fact = (
            f"{batches} {prepared.waiting_text} ({'the driver runs' if driver.alive else driver.status_text})"
        )
    return f"{upper_first(fact)}{_until(prepared, now_ms, orphaned=orphaned)}."


def _until(prepared: PreparedBatches, now_ms: int, *, orphaned: bool) -> str:
    them = "it" if len(prepared.batches) == 1 else "them"
    if prepared.expires_ms is None:
        return f": a restart finishes {them}" if orphaned else ""
    if prepared.expires_ms <= now_ms:
        return f"; transactions timed out at {format_clock(prepared.expires_ms)} and may be lost"
    if orphaned:
        return f": a restart finishes {them} until {format_clock(prepared.expires_ms)}"
    return f"; transactions time out at {format_clock(prepared.expires_ms)}"


def _obstacles(query: RestartFacts, now_ms: int) -> Iterator[_Obstacle]:
    """Yield the reasons against any stop, even a graceful one."""
    if query.severity is Severity.CRITICAL and query.restart:
        yield _Obstacle(False, f"a restart {query.restart}", None)
    deleted = [topic for topic in query.missing if topic.deleted_ms is not None]
    if deleted or query.missing_outputs:
        yield _Obstacle(False, missing_clauses(deleted, query.missing_outputs), None)
    elif query.missing:
        yield _Obstacle(None, missing_clauses(query.missing, ()), None)
    if query.prepared.batches:
        yield from _prepared_obstacles(query, now_ms)
    if query.unseen:
        yield _Obstacle(None, query.unseen, RETRY_S)


def _prepared_obstacles(query: RestartFacts, now_ms: int) -> Iterator[_Obstacle]:
    """Yield obstacles from a prepared batch: none while its driver commits it, or after the driver's end."""
    prepared = query.prepared
    if prepared.expires_ms is not None and prepared.expires_ms <= now_ms:
        words = f"transactions of {prepared} timed out at {format_clock(prepared.expires_ms)} and may be lost"
        yield _Obstacle(False, f"{words}: a restart then fails and names what is lost", None)
        return
    if not prepared.overdue or prepared.is_orphaned(query.driver):
        return
    words = f"{prepared} {prepared.waiting_text}"
    if query.driver.alive:
        yield _Obstacle(False, f"{words}, and the driver still runs", RETRY_S)
    else:
        yield _Obstacle(None, f"{words}, and {query.driver.status_text}", RETRY_S)


def _kill_obstacles(query: RestartFacts) -> Iterator[_Obstacle]:
    """Yield the reasons against a kill: the killed batch may run again."""
    if query.sink == EXACTLY_ONCE or query.driver.alive is False:
        return
    if query.sink == "":
        yield _Obstacle(None, "the sink is not known: a batch that is killed runs again", None)
    else:
        yield _Obstacle(False, "a batch that is killed runs again and may write its rows twice", None)


def _notes(query: RestartFacts) -> Iterator[str]:
    """Yield the work that a restart repeats after a driver ended within a batch, however long one waits."""
    batch = query.batch_in_progress
    if query.driver.alive is False and batch is not None and query.sink != EXACTLY_ONCE:
        twice = " and may write its rows twice" if query.sink else ""
        yield f"batch {batch} was not finished: a restart runs it again{twice}"


def _worst_first(obstacles: Iterable[_Obstacle]) -> Sequence[_Obstacle]:
    return sorted(obstacles, key=lambda obstacle: obstacle.safe is None)


def _sentence(query: RestartFacts, safe: bool | None, reason: str) -> str:
    if safe is None:
        return f"Whether {query.name} is safe to restart is not known: {reason.rstrip('.')}."
    if not safe:
        return f"Do not restart {query.name} now: {reason.rstrip('.')}."
    if query.prepared.is_orphaned(query.driver):
        until = query.prepared.expires_ms
        before = "now" if until is None else f"before {format_clock(until)}"
        return f"Restart {query.name} {before}: that finishes {query.prepared}."
    if query.driver.status is DriverStatus.ENDED:
        return f"{query.name} has stopped and is safe to restart."
    if query.driver.silent_since_ms is not None:
        return f"{query.name} is safe to restart; {query.driver.status_text}."
    return f"{query.name} is safe to restart."


def _together(cluster: str, safe: bool | None, names: Sequence[str], number: int) -> str:
    if not number:
        return f"No query of {cluster} is known."
    if safe is None:
        return f"Whether the queries of {cluster} are safe to restart is not known: see {list_names(names)}."
    if not safe:
        return f"Do not restart the queries of {cluster} now: see {list_names(names)}."
    queries = "The one query" if number == 1 else f"All {number} queries"
    return f"{queries} of {cluster} {is_are(number)} safe to restart."
