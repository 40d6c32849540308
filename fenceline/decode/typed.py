"""Files of jobs: JSON with a format number, whose values must have the types that their record declares."""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
#: What `Optional[int]` is made of, and from Python 3.10 on `int | None`.
_UNIONS = (Union, getattr(types, "UnionType", Union))
#: What `Optional[int]` is made of, and from Python 3.10 on `int | None`.
_UNIONS = (Union, getattr(types, "UnionType", Union))


def read_versioned(
    text: str,
    build: Callable[[dict[str, Any]], T],
    *,
    known: int,
    what: str,
    torn: type[Exception],
    newer: type[Exception],
) -> T:
    """Return what `build` makes of a file's text; raises `torn`, and `newer` for a format above `known`."""
    try:
        document = json.loads(text)
        version = document.pop("format")
        if version <= known:
            return build(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise torn(f"it is torn or no {what} ({error})") from error
    raise newer(f"its format is {version}, this Fenceline knows formats up to {known}")


def untyped_field(value: object) -> str | None:
    """Return the first field of a dataclass or named tuple whose value is of another type, else None."""
    kind: type = type(value)
    for name, hint in _hints(kind).items():
        if not _fits(getattr(value, name), hint):
            return name
    return None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: object, hint: Any) -> bool:
    arguments = get_args(hint)
    if get_origin(hint) in _UNIONS:
        return any(_fits(value, each) for each in arguments)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and _all_fit(value, arguments)
    if hint is int:
        return type(value) is int
    return isinstance(value, hint) and (not _is_record(hint) or untyped_field(value) is None)


def _all_fit(values: tuple[object, ...], hints: tuple[Any, ...]) -> bool:
    if hints[-1] is Ellipsis:
        return all(_fits(each, hints[0]) for each in values)
    return len(values) == len(hints) and all(map(_fits, values, hints))


def _is_record(hint: type) -> bool:
    return (is_dataclass(hint) or hasattr(hint, "_fields")) and not issubclass(hint, Enum)
