"""Predict the effect of a restart on a checkpoint: the decision table of docs/design/spark.md §1.6, each row
proved on Spark 4.2.

O is the newest batch in the offset log, C the newest in the commit log. Spark plans O only from `offsets/O`
and `offsets/(O-1)`, runs it again unless C shows that it is done, and treats every earlier batch as done.
Rows are tried in Spark's order: the first obstacle is the one that an operator sees.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from fenceline.decode.checkpoint import COMMITS, OFFSETS
from fenceline.facts import Severity
from fenceline.spark.records import Broken, Checkpoint, CommitsEntry, Damage, OffsetsEntry

#: The text before any advice to remove files.
COPY_FIRST = "copy the checkpoint folder to another place, then"


class RestartVerdict(StrEnum):
    """The result of a restart; stored by these words."""

    #: Nothing is planned: it would begin at batch 0.
    NOT_STARTED = "not_started"
    CLEAN = "clean"
    #: The newest batch is planned and not done, and its driver is alive.
    IN_FLIGHT = "in_flight"
    #: The same without a driver, or with an unknown one: it runs again.
    REPLAY = "replay"
    #: Asynchronous progress tracking: logs have holes, ranges may change.
    ASYNC = "async"
    #: Continuous processing: it continues from the newest commit, regardless of the plan.
    CONTINUOUS = "continuous"
    #: Batches between the logs count as done and never run again.
    SILENT_GAP = "silent_gap"
    #: Files before the last two are missing: only history is lost.
    HISTORY_GAP = "history_gap"
    PREVIOUS_MISSING = "previous_missing"
    #: Commits are ahead of offsets.
    ROLLED_BACK = "rolled_back"
    OFFSETS_GONE = "offsets_gone"
    STATE_LEFT = "state_left"
    STATE_GONE = "state_gone"
    STATE_BROKEN = "state_broken"
    IDENTITY_LOST = "identity_lost"
    IDENTITY_BROKEN = "identity_broken"
    TORN_OFFSETS = "torn_offsets"
    TORN_COMMITS = "torn_commits"
    FEWER_SOURCES = "fewer_sources"
    NEWER_FORMAT = "newer_format"
    #: The decisive files may not be read.
    UNREADABLE = "unreadable"


class Restart(NamedTuple):
    verdict: RestartVerdict
    #: Its first batch; None if it fails before any.
    first_batch: int | None
    #: Its effect, to follow "A restart".
    sentence: str
    #: None if it is harmless.
    severity: Severity | None
    #: The remedy before it; "" without one.
    remedy: str = ""


class _Case(NamedTuple):
    of: Checkpoint
    #: O and C, -1 without any.
    planned: int
    finished: int
    alive: bool | None
    sparse: bool

    @property
    def previous_planned(self) -> int | None:
        """The second newest planned batch, from the folder's listing."""
        return self.of.offsets[-2] if len(self.of.offsets) > 1 else None


_Row = Callable[[_Case], Restart | None]


def predict_restart(
    checkpoint: Checkpoint,
    *,
    alive: bool | None,
    asynchronous: bool = False,
) -> Restart:
    """Return the effect of a restart on this checkpoint, by Spark 4.2.

    `alive`: whether a driver runs the query, None if unknown. `asynchronous`: whether its listener has
    reported asynchronous progress tracking. Logs with the same holes do not prove that: files lost from both
    leave the same, and then a restart fails.
    """
    planned, finished = (
        -1 if batch_id is None else batch_id
        for batch_id in (checkpoint.newest_planned, checkpoint.newest_finished)
    )
    case = _Case(checkpoint, planned, finished, alive, asynchronous)
    return next(prediction for row in _ROWS if (prediction := row(case)) is not None)


def _identity(case: _Case) -> Restart | None:
    broken = case.of.identity
    if broken is None or (broken.damage is Damage.MISSING and case.planned == case.finished == -1):
        return None
    if broken.damage is Damage.DENIED:
        return _unreadable(broken)
    if broken.damage is not Damage.MISSING:
        words = f"fails in start(): metadata cannot be read ({broken.detail})"
        remedy = 'write metadata again as {"id":"…"} with the query\'s id, or restore the file'
        return Restart(RestartVerdict.IDENTITY_BROKEN, None, words, Severity.CRITICAL, remedy)
    remedy = "restore metadata with the query's id before anything starts here"
    # SPARK-55058: earlier versions go on under a new query id.
    words = "fails: STREAMING_CHECKPOINT_MISSING_METADATA_FILE, metadata is missing and the logs are not"
    return Restart(RestartVerdict.IDENTITY_LOST, None, words, Severity.CRITICAL, remedy)


def _nothing_planned(case: _Case) -> Restart | None:
    if case.planned >= 0:
        return None
    if case.finished >= 0:
        words = (
            "fails: offsets/ is empty and commits/ is not (assertion failed, or "
            "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY)"
        )
        remedy = "restore offsets/ from a copy, at least its last two files, or start with a new checkpoint"
        return Restart(RestartVerdict.OFFSETS_GONE, None, words, Severity.CRITICAL, remedy)
    if case.of.has_state:
        words = "fails: STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY, state/ has files and the logs have none"
        remedy = "restore offsets/ and commits/ from a copy, or start with a new checkpoint"
        return Restart(RestartVerdict.STATE_LEFT, None, words, Severity.CRITICAL, remedy)
    start = "from sources/0/0" if case.of.initial else "from where its options begin"
    return Restart(RestartVerdict.NOT_STARTED, 0, f"runs batch 0, {start}", None)


def _last_offsets(case: _Case) -> Restart | None:
    name = f"{OFFSETS}/{case.planned}"
    remedy = f"restore {name} from a copy: its batch may be done, and only this file records how far it went"
    if case.finished < case.planned and not case.sparse:
        remedy = f"{COPY_FIRST} remove {name}: nothing of its batch has run, it is planned anew"
    return _log_file(case.of.last_offsets, RestartVerdict.TORN_OFFSETS, remedy)


def _previous_offsets(case: _Case) -> Restart | None:
    if case.planned == 0 or _is_continuous(case):
        return None
    if case.previous_planned == case.planned - 1 or (case.sparse and case.previous_planned is not None):
        remedy = f"restore {OFFSETS}/{case.previous_planned} from a copy"
        return _log_file(case.of.previous_offsets, RestartVerdict.TORN_OFFSETS, remedy)
    missing = case.planned - 1
    words = f"fails: batch {missing} doesn't exist ({OFFSETS}/{missing} is missing)"
    remedy = f"restore {OFFSETS}/{missing} from a copy"
    if is_sparse(case.of.offsets, case.of.commits):
        words += (
            "; asynchronous progress tracking leaves such logs too and goes on over them, but the query's "
            "listener has not reported it"
        )
        remedy = f"attach the listener if the query tracks its progress asynchronously; if not, {remedy}"
    if case.previous_planned is not None:
        remedy += (
            f"; if there is none, {COPY_FIRST} remove {OFFSETS}/{case.planned} and {COMMITS} from "
            f"{case.previous_planned + 1} on: what {_span(case.previous_planned + 1, case.planned)} wrote "
            "comes twice"
        )
    return Restart(RestartVerdict.PREVIOUS_MISSING, None, words, Severity.CRITICAL, remedy)


def _sources(case: _Case) -> Restart | None:
    last, before = case.of.last_offsets, case.of.previous_offsets
    if not isinstance(last, OffsetsEntry) or not isinstance(before, OffsetsEntry) or last.version > 1:
        return None
    now, were = len(last.sources), len(before.sources)
    if now >= were:
        return None
    words = (
        f"fails: There are [{now}] sources in the checkpoint offsets and now there are [{were}] sources "
        f"requested by the query ({OFFSETS}/{last.batch_id} has fewer lines than {OFFSETS}/{before.batch_id})"
    )
    remedy = f"restore {OFFSETS}/{last.batch_id} from a copy; where the query has lost a source, give it back"
    return Restart(RestartVerdict.FEWER_SOURCES, None, words, Severity.CRITICAL, remedy)


def _last_commit(case: _Case) -> Restart | None:
    remedy = (
        f"restore {COMMITS}/{case.finished} from a copy; if there is none, {COPY_FIRST} remove it: batch "
        f"{case.planned} runs again with the same range"
    )
    return _log_file(case.of.last_commit, RestartVerdict.TORN_COMMITS, remedy)


def _continuous(case: _Case) -> Restart | None:
    if not _is_continuous(case):
        return None
    start = f"{OFFSETS}/{case.finished}" if case.finished >= 0 else "the beginning"
    words = f"runs epoch {case.finished + 1} from {start} on: what ran after that is read again"
    return Restart(RestartVerdict.CONTINUOUS, case.finished + 1, words, None)


def _state_gone(case: _Case) -> Restart | None:
    if case.of.has_state or not _has_state_ids(case):
        return None
    words = "fails: STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY, state/ is empty or missing"
    remedy = "restore state/ from a copy, or start with a new checkpoint: the state cannot be rebuilt"
    return Restart(RestartVerdict.STATE_GONE, None, words, Severity.CRITICAL, remedy)


def _rolled_back(case: _Case) -> Restart | None:
    if case.finished <= case.planned:
        return None
    meets = min(batch_id for batch_id in case.of.commits if batch_id >= case.planned)
    ran = f"batch {case.planned}" if meets == case.planned else f"batches {case.planned} to {meets}"
    words = (
        f"runs {ran} again, writes to the sink, then fails: CONCURRENT_STREAM_LOG_UPDATE, {COMMITS}/{meets} "
        f"is there already; {OFFSETS} end at {case.planned} and {COMMITS} at {case.finished}"
    )
    remedy = (
        f"restore {OFFSETS} up to {case.finished} from a copy; if there is none, {COPY_FIRST} remove "
        f"{COMMITS} from {meets} on: those batches run again, and what they wrote comes twice"
    )
    return Restart(RestartVerdict.ROLLED_BACK, case.planned, words, Severity.CRITICAL, remedy)


def _behind(case: _Case) -> Restart | None:
    """Predict for an offset log that is more than one batch ahead."""
    if case.planned <= case.finished + 1 or _is_without_commits(case):
        return None
    after = [batch_id for batch_id in case.of.offsets if batch_id > case.finished]
    if case.sparse and len(after) == 1:
        words = (
            f"runs batch {case.planned} from {OFFSETS}/{case.previous_planned} on: all that ran after batch "
            f"{case.finished} comes again, in one range; without asynchronous progress tracking it fails: "
            f"batch {case.planned - 1} doesn't exist"
        )
        return Restart(RestartVerdict.ASYNC, case.planned, words, Severity.INFO)
    missed = _span(case.finished + 1, case.planned - 1)
    words = (
        f"runs batch {case.planned} again from {OFFSETS}/{case.previous_planned} and skips {missed} with no "
        "more than a warning in Spark's log: what the sink has not finished of that is lost"
    )
    remedy = (
        f"check the sink for {missed} before anything starts here; if something is missing, {COPY_FIRST} "
        f"remove {OFFSETS} after {case.finished + 1}: Spark goes on from there and repeats what is there"
    )
    if _has_state_ids(case):
        needed = case.planned - 1
        words = f"fails: only {COMMITS}/{needed} records which files hold the state after batch {needed}"
        return Restart(RestartVerdict.SILENT_GAP, None, words, Severity.CRITICAL, remedy)
    return Restart(RestartVerdict.SILENT_GAP, case.planned, words, Severity.CRITICAL, remedy)


def _state_broken(case: _Case) -> Restart | None:
    if not case.of.state_broken:
        return None
    words = f"fails in its first batch: CANNOT_LOAD_STATE_STORE, {case.of.state_broken}"
    remedy = "restore these files of state/ from a copy, or start with a new checkpoint"
    return Restart(RestartVerdict.STATE_BROKEN, None, words, Severity.CRITICAL, remedy)


def _again(case: _Case) -> Restart | None:
    """Predict for a newest batch that is planned and not done."""
    if case.planned == case.finished:
        return None
    words = f"runs batch {case.planned} again with the same range"
    if case.alive:
        return Restart(RestartVerdict.IN_FLIGHT, case.planned, words, None)
    if case.sparse and case.previous_planned != case.planned - 1:
        return _sparse(case, case.planned)
    last = case.of.last_offsets
    if isinstance(last, OffsetsEntry) and last.control:
        words = f"{words}; it is a control batch ({last.control}) that has to be finished as it was begun"
    return Restart(RestartVerdict.REPLAY, case.planned, words, Severity.INFO)


def _done(case: _Case) -> Restart:
    first = case.planned + 1
    if case.sparse and case.planned and case.previous_planned != case.planned - 1:
        return _sparse(case, first)
    holes = case.of.offsets[-1] - case.of.offsets[0] + 1 - len(case.of.offsets)
    if holes and not case.sparse:
        words = f"runs batch {first}; {holes} older files of {OFFSETS} are missing, which history alone needs"
        return Restart(RestartVerdict.HISTORY_GAP, first, words, Severity.INFO)
    return Restart(RestartVerdict.CLEAN, first, f"runs batch {first}", None)


def _sparse(case: _Case, first: int) -> Restart:
    words = (
        f"runs batch {first} with asynchronous progress tracking; without it, it fails: batch "
        f"{case.planned - 1} doesn't exist"
    )
    return Restart(RestartVerdict.ASYNC, first, words, Severity.INFO)


def _log_file(
    entry: OffsetsEntry | CommitsEntry | Broken | None, torn: RestartVerdict, remedy: str
) -> Restart | None:
    """Predict for a log file that Spark cannot read; None if it can."""
    if not isinstance(entry, Broken):
        return None
    if entry.damage is Damage.DENIED:
        return _unreadable(entry)
    if entry.damage is Damage.NEWER:
        words = f"fails in every older Spark: INVALID_LOG_VERSION, {entry.path} ({entry.detail})"
        remedy = "restart it with the Spark that wrote it or later"
        return Restart(RestartVerdict.NEWER_FORMAT, None, words, Severity.WARNING, remedy)
    problem = "Incomplete log file" if entry.damage is Damage.EMPTY else "it cannot be parsed"
    words = f"fails: {problem}, {entry.path} ({entry.detail})"
    return Restart(torn, None, words, Severity.CRITICAL, remedy)


def _unreadable(broken: Broken) -> Restart:
    words = f"cannot be foretold: {broken.path} may not be read ({broken.detail})"
    remedy = f"let the dashboard read {broken.path}"
    return Restart(RestartVerdict.UNREADABLE, None, words, Severity.WARNING, remedy)


def _is_continuous(case: _Case) -> bool:
    """Whether epochs of continuous processing are logged: only it writes no metadata line."""
    last = case.of.last_offsets
    return isinstance(last, OffsetsEntry) and last.planned_ms is None and not last.conf


def _is_without_commits(case: _Case) -> bool:
    """Whether Spark before 2.2 wrote the checkpoint, without a commit log and without `conf` in its offset
    log.

    It planned a batch only after the one before was done. Later versions create `commits/` before they plan
    any.
    """
    last = case.of.last_offsets
    return not case.of.has_commits and isinstance(last, OffsetsEntry) and not last.conf


def _has_state_ids(case: _Case) -> bool:
    return isinstance(case.of.last_commit, CommitsEntry) and bool(case.of.last_commit.state_ids)


def _span(low: int, high: int) -> str:
    return f"batch {low}" if low == high else f"batches {low} to {high}"


_ROWS: Sequence[_Row] = (
    _identity,
    _nothing_planned,
    _last_offsets,
    _previous_offsets,
    _sources,
    _last_commit,
    _continuous,
    _state_gone,
    _rolled_back,
    _behind,
    _state_broken,
    _again,
    _done,
)


def is_sparse(planned: Sequence[int], finished: Sequence[int]) -> bool:
    """Return whether two logs have the same holes, as asynchronous progress tracking leaves them.

    It writes both files of a batch or neither. Deleting the same ids from both logs has the same result.
    Only about the last two hundred ids are compared.
    """
    steps = pairwise(planned[-200:])
    holes = {batch_id for low, high in steps for batch_id in range(low + 1, min(high, low + 1_000))}
    return bool(holes) and not holes & set(finished)
