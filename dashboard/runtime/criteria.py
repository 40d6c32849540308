"""What a list can be asked for: the parameters of a query string, described once for its page and the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from django.db.models import Q
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.fields import FieldInfo

from fenceline.time_range import read_instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Columns of figures, whose large ones come first unless `dir` is given.
_LARGE_FIRST = frozenset({"held", "lag", "unread", "behind", "batch", "pending"})


def _without_nul(value: str) -> str:
    # PostgreSQL takes none, and no name has one: what cannot be shown is written \xNN.
    if "\0" in value:
        raise ValueError(r"names hold no NUL; a byte that cannot be shown is written \xNN")
    return value


#: Text that is compared with names as the database holds them.
Name = Annotated[str, AfterValidator(_without_nul)]


class Criteria(BaseModel):
    """The parameters of a list; each field's alias, or its name, is the parameter in an address.

    A field's type, bounds and default are the parameter's. "" and None ask for nothing.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    #: Parameters of the API that no page has.
    api_only: ClassVar[frozenset[str]] = frozenset()


def _instant(value: object) -> object:
    """Return milliseconds since 1970 of a parameter, None for none."""
    if isinstance(value, str):
        return read_instant(value) if value else None
    return value


#: A parameter that is an ISO 8601 instant, without a zone in UTC; in ms since 1970.
Instant = Annotated[
    int | None, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]


class Ranged(Criteria):
    """The range of time of a list: `from` ≤ t < `to`; without them all that is kept."""

    from_ms: Instant = Field(default=None, alias="from")
    to_ms: Instant = Field(default=None, alias="to")

    @classmethod
    def between(cls, from_ms: int | None, to_ms: int | None, **others: object) -> Self:
        """Return the parameters of a range, and others by their names."""
        return cls.model_validate({"from": from_ms, "to": to_ms, **others})

    @property
    def is_ranged(self) -> bool:
        """Return whether a range is asked for."""
        return self.from_ms is not None or self.to_ms is not None

    @field_validator("to_ms")
    @classmethod
    def _is_later(cls, value: int | None, others: ValidationInfo) -> int | None:
        start = others.data.get("from_ms")
        if value is not None and start is not None and value <= start:
            raise ValueError("it must be later than “from”")
        return value


class Sorted(Criteria):
    """The order of a list: `sort` is a column."""

    sort: str
    dir: Literal["asc", "desc"] = Field(
        default_factory=lambda data: "desc" if data["sort"] in _LARGE_FIRST else "asc"
    )

    @property
    def descending(self) -> bool:
        return self.dir == "desc"


def parameter_fields(criteria: type[Criteria]) -> Mapping[str, FieldInfo]:
    """The fields of a list by their parameters."""
    return {field.alias or name: field for name, field in criteria.model_fields.items()}


def parameter_choices(criteria: type[Criteria], parameter: str) -> Sequence[str]:
    """Every word that a parameter takes, in the order of its type; empty where it takes any."""
    return [word for word in _words(parameter_fields(criteria)[parameter].annotation) if word]


def _words(annotation: Any) -> Iterator[str]:
    if annotation is bool:
        yield from ("true", "false")
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (member.value for member in annotation)
    elif get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    else:
        for part in get_args(annotation):
            yield from _words(part)


def given_conditions(**conditions: object) -> Mapping[str, object]:
    """Those conditions of a filter for which a value was asked."""
    return {name: value for name, value in conditions.items() if value not in ("", None)}


def starts_in_range(wanted: Ranged, field: str) -> Q:
    """Return that a row's instant is in the range; fields of milliseconds end in `_ms`."""
    found = Q()
    if wanted.from_ms is not None:
        found &= Q(**{f"{field}__gte": _comparable(field, wanted.from_ms)})
    if wanted.to_ms is not None:
        found &= Q(**{f"{field}__lt": _comparable(field, wanted.to_ms)})
    return found


def overlaps_range(wanted: Ranged, start: str, end: str) -> Q:
    """Return that a row lasted at some time of the range; one without an end lasts."""
    found = Q()
    if wanted.from_ms is not None:
        found &= Q(**{end: None}) | Q(**{f"{end}__gte": _comparable(end, wanted.from_ms)})
    if wanted.to_ms is not None:
        found &= Q(**{f"{start}__lt": _comparable(start, wanted.to_ms)})
    return found


def _comparable(field: str, ms: int) -> int | datetime:
    return ms if field.endswith("_ms") else _EPOCH + timedelta(milliseconds=ms)
