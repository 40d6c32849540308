"""The state machine of a transactional id as a drawing: boxes and lines, with the current ones lit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fenceline.facts import TransactionState

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


@dataclass(frozen=True, slots=True)
class Box:
    """One state; x and y are its upper left corner, `text_x` and `text_y` the place of its word."""

    name: str
    x: int
    y: int
    lit: bool
    width: int = _WIDTH
    height: int = _HEIGHT

    @property
    def css(self) -> str:
        """Return its CSS classes."""
        return f"box box-lit box-{self.name}" if self.lit else "box"

    @property
    def text_x(self) -> int:
        """Return the horizontal middle."""
        return self.x + self.width // 2

    @property
    def text_y(self) -> int:
        """Return the base line of a vertically centred word."""
        return self.y + self.height // 2 + 4


@dataclass(frozen=True, slots=True)
class DiagramLine:
    """A line between states; `passed` if it led to the current state."""

    x1: int
    y1: int
    x2: int
    y2: int
    passed: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """One layout of the machine; sizes are units of its view box."""

    name: str
    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[DiagramLine]


def draw_diagrams(state: str) -> Sequence[Drawing]:
    """Return the machine with `state` lit, laid out for wide pages and for phones."""
    return [_layout("wide", 562, 140, _WIDE, state), _layout("tall", 280, 240, _TALL, state)]


def _layout(
    name: str, width: int, height: int, corners: Mapping[TransactionState, tuple[int, int]], state: str
) -> Drawing:
    passed = set(_way_to(TransactionState(state)))
    boxes = [Box(shown.value, *corner, lit=shown == state) for shown, corner in corners.items()]
    lines = [_line(corners[a], corners[b], name == "wide", (a, b) in passed) for a, b in _NEXT]
    return Drawing(name, width, height, boxes, lines)


def _line(start: tuple[int, int], end: tuple[int, int], across: bool, passed: bool) -> DiagramLine:
    if across:
        return DiagramLine(start[0] + _WIDTH, start[1] + _HEIGHT // 2, end[0], end[1] + _HEIGHT // 2, passed)
    return DiagramLine(start[0] + _WIDTH // 2, start[1] + _HEIGHT, end[0] + _WIDTH // 2, end[1], passed)


def _way_to(state: TransactionState) -> Sequence[tuple[TransactionState, TransactionState]]:
    before = {b: (a, b) for a, b in _NEXT}
    way = []
    while state in before:
        way.append(before[state])
        state = before[state][0]
    return way
