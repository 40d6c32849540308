"""Read an id's last transitions as transactions: their start, their end, their usual duration.

Pure. Transitions are newest first, at most the 20 stored ones of an id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.labels.transition import TRANSITION_STYLES
from dashboard.models import Transaction
from dashboard.web.charts.figures import Bar, Mark
from fenceline.facts import OPEN_STATES, TransactionState, Transition, TransitionKind
from fenceline.formatting import count_noun, format_duration
from fenceline.series import histograms
from fenceline.series.histograms import Histogram

THIS = "this id"
#: Kinds of transitions that an id's own or another producer causes before a transaction can begin.
_INITIALISATIONS = frozenset(
    {
        TransitionKind.INIT,
        TransitionKind.REINIT,
        TransitionKind.ADMIN_FENCE,
        TransitionKind.TAKEOVER,
        TransitionKind.SELF_RECOVERY,
        TransitionKind.ROTATION,
    }
)


@dataclass(frozen=True, slots=True)
class NewestTransaction:
    """The newest transaction of an id, from its transitions; None for unknown instants."""

    initialised: Transition | None
    initialised_ms: int | None
    begun: Transition | None
    #: Partitions and offsets that were added after the first, oldest first.
    extended: Sequence[Transition]
    end: Transition | None


@dataclass(frozen=True, slots=True)
class UsualDuration:
    """Usual durations: p50, p95 and p99."""

    whose: str
    what: str
    number: int
    p50: float
    p95: float
    p99: float


def newest_transaction(recent: Sequence[Transition], notable: Sequence[Transition] = ()) -> NewestTransaction:
    """Return the newest transaction: back to its beginning, and to the initialisation before that.

    `notable` may contain an older transaction than `recent`.
    """
    end: Transition | None = None
    begun: Transition | None = None
    extended: list[Transition] = []
    for transition in recent:
        if _initialises(transition) or begun is not None:
            break
        if transition.kind is TransitionKind.EMPTY_ABORT:
            # It ends no transaction, and no earlier transition belongs to it.
            end = end or transition
            break
        if transition.kind is TransitionKind.BEGIN:
            begun = transition
        elif transition.kind is TransitionKind.EXTEND:
            extended.insert(0, transition)
        elif is_end(transition):
            if end is not None:
                break  # An end without its beginning, which is no longer stored.
            end = transition
    initialised = next(filter(_initialises, [*recent, *notable]), None)
    return NewestTransaction(
        initialised,
        None if initialised is None else initialised_ms(initialised),
        begun,
        extended,
        end,
    )


def is_end(transition: Transition) -> bool:
    """Return whether a transition ended a transaction that was open."""
    return transition.open_ms is not None and transition.kind is not TransitionKind.EMPTY_ABORT


def _initialises(transition: Transition) -> bool:
    # A producer that ended an open transaction by initialising received its answer only after the abort.
    return transition.kind in _INITIALISATIONS and (not is_end(transition) or transition.gap_ms is not None)


def initialised_ms(transition: Transition) -> int:
    """Return when the producer was initialised; after the abort, if it ended an open transaction."""
    if transition.completed_ms is not None and transition.gap_ms is not None:
        return transition.completed_ms + transition.gap_ms
    return transition.at_ms


def timeline_bars(recent: Sequence[Transition], row: Transaction | None, now_ms: int) -> Sequence[Bar]:
    """Return the ended transactions and the open one, oldest first."""
    bars = [_bar(transition) for transition in reversed(recent) if is_end(transition)]
    if row is not None and row.state in OPEN_STATES and row.started_ms is not None:
        bars = [bar for bar in bars if bar.begun_ms != row.started_ms]
        words = f"{row.state}, open for {format_duration(now_ms - row.started_ms)}"
        bars.append(Bar(row.started_ms, max(row.started_ms, now_ms), None, words))
    return bars


def timeline_marks(recent: Sequence[Transition]) -> Sequence[Mark]:
    """Return the other events, oldest first."""
    everyday = (TransitionKind.BEGIN, TransitionKind.EXTEND)
    others = [
        transition
        for transition in reversed(recent)
        if not is_end(transition) and transition.kind not in everyday
    ]
    return [Mark(transition.at_ms, transition.kind, _mark_words(transition)) for transition in others]


def usual_durations(
    recent: Sequence[Transition], application: str, open_times: Histogram, marker_times: Histogram
) -> Sequence[UsualDuration]:
    """Return the usual durations of commits: this id's last ones, and its application's."""
    commits = [commit for commit in recent if commit.kind is TransitionKind.COMMIT]
    opened = sorted(
        commit.open_ms for commit in commits if commit.open_ms is not None and commit.open_ms >= 0
    )
    # Negative if another broker, with another clock, has completed it.
    times = [commit.completed_ms - commit.at_ms for commit in commits if commit.completed_ms is not None]
    marked = sorted(at_ms for at_ms in times if at_ms >= 0)
    marks = [
        _exact(THIS, "begin to decision", opened),
        _exact(THIS, "decision to first marker", marked),
        _counted(application, "begin to decision", open_times),
        _counted(application, "decision to first marker", marker_times),
    ]
    return [mark for mark in marks if mark is not None]


def _bar(transition: Transition) -> Bar:
    open_ms = max(0, transition.open_ms or 0)
    words = f"{TRANSITION_STYLES[transition.kind].words}: open for {format_duration(open_ms)}"
    until_ms = transition.at_ms
    if transition.completed_ms is not None:
        words += f", markers sent after {format_duration(max(0, transition.completed_ms - transition.at_ms))}"
        until_ms = transition.completed_ms
    return Bar(transition.at_ms - open_ms, max(until_ms, transition.at_ms), transition.kind, words)


def _mark_words(transition: Transition) -> str:
    style = TRANSITION_STYLES[transition.kind]
    return f"{style.words}: producer id {transition.producer_id}, epoch {transition.producer_epoch}"


def _exact(whose: str, what: str, ordered: Sequence[int]) -> UsualDuration | None:
    if not ordered:
        return None
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * q))] for q in (0.5, 0.95, 0.99)]
    return UsualDuration(whose, what, len(ordered), *map(float, at))


def _counted(whose: str, what: str, times: Histogram) -> UsualDuration | None:
    at = [histograms.quantile(times, q) for q in (0.5, 0.95, 0.99)]
    known = [ms for ms in at if ms is not None]
    return UsualDuration(whose, what, sum(times.values()), *known) if len(known) == 3 else None


def timeline_summary(bars: Sequence[Bar], others: Sequence[Mark]) -> str:
    """Return a timeline in one sentence, for readers who cannot see it."""
    parts = [count_noun(len(bars), "transaction")] if bars else []
    ends = [bar.end for bar in bars]
    for end in dict.fromkeys(ends):
        words = "open" if end is None else TRANSITION_STYLES[end].words
        parts.append(f"{ends.count(end)} {words}")
    parts += [f"{TRANSITION_STYLES[mark.kind].words}" for mark in others]
    return f"Timeline: {', '.join(parts) or 'nothing'}."


_WIDTH, _HEIGHT = 116, 34
_NEXT = (
    (TransactionState.EMPTY, TransactionState.ONGOING),
    (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT),
    (TransactionState.ONGOING, TransactionState.PREPARE_ABORT),
    (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
)
#: Upper left corners, for wide pages and for phones.
_WIDE = {
    TransactionState.EMPTY: (1, 53),
    TransactionState.ONGOING: (149, 53),
    TransactionState.PREPARE_COMMIT: (297, 9),
    TransactionState.PREPARE_ABORT: (297, 97),
    TransactionState.COMPLETE_COMMIT: (445, 9),
    TransactionState.COMPLETE_ABORT: (445, 97),
}
_TALL = {
    TransactionState.EMPTY: (82, 1),
    TransactionState.ONGOING: (82, 65),
    TransactionState.PREPARE_COMMIT: (8, 137),
    TransactionState.PREPARE_ABORT: (156, 137),
    TransactionState.COMPLETE_COMMIT: (8, 201),
    TransactionState.COMPLETE_ABORT: (156, 201),
}


def draw_diagrams(state: str) -> Sequence[Mapping[str, Any]]:
    """Return the machine with `state` lit, laid out for wide pages and for phones."""
    return [_layout("wide", 562, 140, _WIDE, state), _layout("tall", 280, 240, _TALL, state)]


def _layout(
    name: str, width: int, height: int, corners: Mapping[TransactionState, tuple[int, int]], state: str
) -> Mapping[str, Any]:
    passed = set(_way_to(TransactionState(state)))
    boxes = [_box(shown.value, *corner, lit=shown == state) for shown, corner in corners.items()]
    lines = [_line(corners[a], corners[b], name == "wide", (a, b) in passed) for a, b in _NEXT]
    return {"name": name, "width": width, "height": height, "boxes": boxes, "lines": lines}


def _box(name: str, x: int, y: int, *, lit: bool) -> Mapping[str, Any]:
    """Return one state; `x` and `y` are its upper left corner, the text is centred."""
    return {
        "name": name,
        "x": x,
        "y": y,
        "width": _WIDTH,
        "height": _HEIGHT,
        "lit": lit,
        "css": f"box box-lit box-{name}" if lit else "box",
        "text_x": x + _WIDTH // 2,
        "text_y": y + _HEIGHT // 2 + 4,
    }


def _line(start: tuple[int, int], end: tuple[int, int], across: bool, passed: bool) -> Mapping[str, Any]:
    (x1, y1), (x2, y2) = start, end
    if across:
        ends = x1 + _WIDTH, y1 + _HEIGHT // 2, x2, y2 + _HEIGHT // 2
    else:
        ends = x1 + _WIDTH // 2, y1 + _HEIGHT, x2 + _WIDTH // 2, y2
    return {**dict(zip(("x1", "y1", "x2", "y2"), ends, strict=True)), "passed": passed}


def _way_to(state: TransactionState) -> Sequence[tuple[TransactionState, TransactionState]]:
    before = {b: (a, b) for a, b in _NEXT}
    way = []
    while state in before:
        way.append(before[state])
        state = before[state][0]
    return way
