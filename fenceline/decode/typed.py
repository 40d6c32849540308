"""Convert JSON to records by their declared types: every value must have its field's type.

An object gives a record its fields by name, a list by position. Types are texts, numbers, enumerations,
records, `Optional`, tuples, and mappings, whose keys are texts in JSON. Other values raise TypeError,
ValueError or KeyError.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Read = Callable[[Any], Any]
#: The origins of `Optional[int]` and, from Python 3.10 on, of `int | None`.
_UNIONS = (Union, getattr(types, "UnionType", Union))


class TornFile(Exception):
    """A damaged file, or one of another kind; the text has the reason."""


class NewerFile(TornFile):
    """A file from a newer Fenceline."""


def read_versioned(text: str, kind: type[T], *, known: int, what: str) -> T:
    """Read the record of a file with a format number and without unknown fields.

    Raises TornFile for damage, and NewerFile for a format above `known`.
    """
    try:
        document = json.loads(text)
        version = document.pop("format")
        if version <= known:
            return cast(T, _reader(cast(Any, kind), True)(document))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TornFile(f"it is torn or no {what} ({error})") from error
    raise NewerFile(f"its format is {version}, this Fenceline knows formats up to {known}")


def read_json(kind: type[T], document: object) -> T:
    """Read a value of a type from JSON; unknown fields are ignored."""
    return cast(T, _reader(cast(Any, kind), False)(document))


def record_of(kind: type[T], source: object, /, **given: object) -> T:
    """Build a record from the attributes of another object, such as a row, and from the given fields.

    Enumerations, tuples and records are read like JSON; plain values are taken unchanged. A field with a
    default keeps it if the other object has no such attribute.
    """
    values = {
        name: getattr(source, name) if read is None else read(getattr(source, name))
        for name, read, has_default in _kept_readers(cast(Any, kind))
        if name not in given and not (has_default and not hasattr(source, name))
    }
    return kind(**values, **given)


def fields_of(record: Any) -> dict[str, Any]:
    """Return the field values of a dataclass or named tuple by name; records inside stay records."""
    return {name: getattr(record, name) for name in _names(cast(Any, type(record)))}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else kind._fields


@cache
def _kept_readers(kind: Any) -> tuple[tuple[str, Read | None, bool], ...]:
    """Return each field of a record, its reader (None: taken unchanged), and whether it has a default."""
    hints, defaults = get_type_hints(kind), _defaults(kind)
    return tuple(
        (name, _reader(hints[name], False) if _is_read(hints[name]) else None, name in defaults)
        for name in _names(kind)
    )


def _defaults(kind: Any) -> set[str]:
    if not is_dataclass(kind):
        return set(kind._field_defaults)
    return {
        field.name
        for field in fields(kind)
        if field.default is not MISSING or field.default_factory is not MISSING
    }


def _is_read(hint: Any) -> bool:
    choices = get_args(hint) if get_origin(hint) in _UNIONS else (hint,)
    return any(
        get_origin(choice) is tuple
        or (isinstance(choice, type) and (_is_record(choice) or issubclass(choice, Enum)))
        for choice in choices
    )


def _is_record(kind: type) -> bool:
    return is_dataclass(kind) or hasattr(kind, "_fields")


@cache
def _reader(hint: Any, exact: bool) -> Read:
    """Return the reader for a type; `exact`: reject unknown fields."""
    arguments, origin = get_args(hint), get_origin(hint)
    if hint is Any:
        return lambda value: value
    if origin in _UNIONS:
        (inner,) = (_reader(argument, exact) for argument in arguments if argument is not type(None))
        return lambda value: None if value is None else inner(value)
    if origin is tuple and arguments[-1] is Ellipsis:
        item = _reader(arguments[0], exact)
        return lambda values: tuple([item(value) for value in _list(values)])
    if origin is tuple:
        return partial(_read_tuple, [_reader(argument, exact) for argument in arguments])
    if origin is Mapping:
        key, item = (_reader(argument, exact) for argument in arguments)
        spelled = int if arguments[0] is int else key
        return lambda values: {spelled(name): item(value) for name, value in values.items()}
    if issubclass(hint, Enum):
        return cast(Read, hint)
    if _is_record(hint):
        hints = get_type_hints(hint)
        return partial(
            _read_record, hint, {name: _reader(hints[name], exact) for name in _names(hint)}, exact
        )
    return partial(_read_plain, hint)


def _read_record(kind: Any, readers: Mapping[str, Read], exact: bool, document: Any) -> Any:
    if not isinstance(document, Mapping):
        return kind(*_read_tuple([*readers.values()][: len(_list(document))], document))
    if exact and (unknown := document.keys() - readers.keys()):
        raise TypeError(f"it has an unknown field {min(unknown)}")
    return kind(**{name: read(document[name]) for name, read in readers.items() if name in document})


def _read_tuple(readers: list[Read], values: Any) -> tuple[Any, ...]:
    if len(_list(values)) != len(readers):
        raise TypeError(f"{len(values)} values where {len(readers)} belong")
    return tuple([read(value) for read, value in zip(readers, values)])


def _list(values: Any) -> Any:
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{values!r} is no list")
    return values


def _read_plain(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
