r"""Regular expressions that anybody may write, matched in time linear in the text. Pure.

Python's `re` tries one way after another: `(a+)+b` on forty letters takes years, and would hold up every
alert. Here all ways are followed at once (Thompson, as RE2 does it, which Alertmanager uses), of Python's
syntax what a label needs: characters, `.`, classes, `\d \w \s`, groups, `|`, `* + ? {m,n}`. A pattern is
anchored: it must match the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

#: Characters of a pattern, and the steps it may need: `(a{50}){50}` needs 2,500.
LONGEST = 256
MOST_STEPS = 2_000

Taken = Callable[[str], bool]


class Pattern(NamedTuple):
    """Steps of a machine: each takes a character and goes to the next, or goes to others at once."""

    #: By step: what it takes, or where it goes on; the step behind the last one is the end.
    steps: Sequence[Taken | tuple[int, ...]]


@lru_cache(maxsize=1_024)
def compile(text: str) -> Pattern:
    """Return the machine for a pattern; raises ValueError with words for a person."""
    if len(text) > LONGEST:
        raise ValueError(
            f"The pattern has {len(text):,} characters; at most {LONGEST} are taken: shorten it."
        )
    try:
        tree = _parser.parse(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"“{text}” is not a regular expression: {error}.") from error
    if tree.state.flags & ~re.UNICODE.value:
        raise ValueError(f"“{text}” sets flags, as in (?i), which are not taken here: write [Aa] instead.")
    return Pattern(list(_numbered(_sequence(tree))))


@lru_cache(maxsize=16_384)
def matches(text: str, value: str) -> bool:
    """Whether a pattern matches all of a value; raises ValueError as `compile` does."""
    steps = compile(text).steps
    now = _reached(steps, {0})
    for char in value:
        if not now:
            return False
        taken = {at + 1 for at in now if at < len(steps) and _takes(steps[at], char)}
        now = _reached(steps, taken)
    return len(steps) in now


def _takes(step: Taken | tuple[int, ...], char: str) -> bool:
    return not isinstance(step, tuple) and step(char)


def _reached(steps: Sequence[Taken | tuple[int, ...]], begin: Iterable[int]) -> set[int]:
    """Return all steps that are reached without a character."""
    found: set[int] = set()
    open_ = list(begin)
    while open_:
        at = open_.pop()
        if at in found:
            continue
        found.add(at)
        step = steps[at] if at < len(steps) else None
        if isinstance(step, tuple):
            open_ += step
    return found


#: A machine in parts, jumps counted from where they stand.
_Parts = list["Taken | tuple[int, ...]"]


def _numbered(parts: _Parts) -> Iterator[Taken | tuple[int, ...]]:
    for at, part in enumerate(parts):
        yield tuple(at + jump for jump in part) if isinstance(part, tuple) else part


def _sequence(tree: Iterable[tuple[Any, Any]]) -> _Parts:
    found: _Parts = []
    for what, how in tree:
        found += _one(what, how)
        if len(found) > MOST_STEPS:
            raise ValueError("The pattern repeats too much: use smaller numbers in {…}.")
    return found


def _one(what: Any, how: Any) -> _Parts:
    if what in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        least, most, body = how
        return _repeat(_sequence(body), least, most)
    if what is sre.BRANCH:
        return _branch([_sequence(each) for each in how[1]])
    if what is sre.SUBPATTERN and not how[1] and not how[2]:
        return _sequence(how[3])
    if what is sre.AT and how in (sre.AT_BEGINNING, sre.AT_END):
        raise ValueError("A pattern matches the whole text: leave out ^ and $.")
    return [_taken(what, how)]


def _repeat(body: _Parts, least: int, most: Any) -> _Parts:
    size = len(body)
    endless = most is sre.MAXREPEAT
    if size * (least + 1 if endless else most) > MOST_STEPS:
        raise ValueError("The pattern repeats too much: use smaller numbers in {…}.")
    if endless:
        return body * least + [(1, size + 2), *body, (-size - 1, 1)]
    rest = most - least
    # Each further one may be the last: from before it to behind all of them.
    return body * least + [part for n in range(rest) for part in [(1, (rest - n) * (size + 1)), *body]]


def _branch(bodies: Sequence[_Parts]) -> _Parts:
    if len(bodies) == 1:
        return bodies[0]
    first, rest = bodies[0], _branch(bodies[1:])
    return [(1, len(first) + 2), *first, (len(rest) + 1,), *rest]


def _taken(what: Any, how: Any) -> Taken:
    """Return what takes one character."""
    if what is sre.LITERAL:
        return lambda char: ord(char) == how
    if what is sre.NOT_LITERAL:
        return lambda char: ord(char) != how
    if what is sre.ANY:
        return lambda char: char != "\n"
    if what is sre.RANGE:
        low, high = how
        return lambda char: low <= ord(char) <= high
    if what is sre.CATEGORY and how in _CATEGORIES:
        return _CATEGORIES[how]
    if what is sre.IN:
        return _any_of(how)
    raise ValueError(
        "The pattern uses what is not taken here: look-around, back references, \\b and the like. "
        "Characters, classes, groups, | and * + ? {m,n} are."
    )


def _any_of(parts: Sequence[tuple[Any, Any]]) -> Taken:
    negated = bool(parts) and parts[0][0] is sre.NEGATE
    each = [_taken(what, how) for what, how in parts[negated:]]
    return lambda char: any(takes(char) for takes in each) is not negated


_DIGIT, _SPACE, _WORD = re.compile(r"\d"), re.compile(r"\s"), re.compile(r"\w")
_CATEGORIES: dict[Any, Taken] = {
    sre.CATEGORY_DIGIT: lambda char: bool(_DIGIT.match(char)),
    sre.CATEGORY_NOT_DIGIT: lambda char: not _DIGIT.match(char),
    sre.CATEGORY_SPACE: lambda char: bool(_SPACE.match(char)),
    sre.CATEGORY_NOT_SPACE: lambda char: not _SPACE.match(char),
    sre.CATEGORY_WORD: lambda char: bool(_WORD.match(char)),
    sre.CATEGORY_NOT_WORD: lambda char: not _WORD.match(char),
}
