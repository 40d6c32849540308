"""Parameters of lists, one description of a query string for both the page and the API; and pages of a list
with a known length.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, get_args, get_origin

from django.core.paginator import Paginator
from django.db.models import Case, F, IntegerField, Q, QuerySet, Value, When
from django.db.models.expressions import Expression, OrderBy
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
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from fenceline.history.time_range import read_instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Columns of figures, which sort descending unless `dir` is given.
_LARGE_FIRST = frozenset({"held", "lag", "unread", "behind", "batch", "pending"})


def _without_nul(value: str) -> str:
    # PostgreSQL stores no NUL, and names never contain one: they are escaped as \xNN.
    if "\0" in value:
        raise ValueError(r"names hold no NUL; a byte that cannot be shown is written \xNN")
    return value


#: Maximum characters of a search text: SQLite's patterns have at most 50,000 bytes.
LONGEST_SEARCH = 200
#: Text that is compared with stored names. Kafka's longest id has 32,767 bytes, and every byte may be written
#: as \xNN.
Name = Annotated[str, Field(max_length=4 * 32_767), AfterValidator(_without_nul)]
#: Text that is a part of a name.
Search = Annotated[str, Field(max_length=LONGEST_SEARCH), AfterValidator(_without_nul)]


class Criteria(BaseModel):
    """The parameters of a list; a field's alias, or its name, is the parameter in a URL.

    A field's type, bounds and default are the parameter's. "" and None set no condition.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    #: Parameters of the API that pages lack.
    api_only: ClassVar[frozenset[str]] = frozenset()


def _instant(value: object) -> object:
    """Return a parameter in milliseconds since 1970, None for an empty one."""
    if isinstance(value, str):
        return read_instant(value) if value else None
    return value


_INSTANT: JsonDict = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "const": ""}]}
#: A parameter with an ISO 8601 instant (UTC without a zone), as ms since 1970.
Instant = Annotated[int | None, BeforeValidator(_instant), WithJsonSchema(_INSTANT)]


class Ranged(Criteria):
    """The time range of a list: `from` ≤ t < `to`; without them all rows."""

    from_ms: Instant = Field(default=None, alias="from")
    to_ms: Instant = Field(default=None, alias="to")

    @classmethod
    def between(cls, from_ms: int | None, to_ms: int | None, **others: object) -> Self:
        """Return the parameters of a range, and other parameters by name."""
        return cls.model_validate({"from": from_ms, "to": to_ms, **others})

    @property
    def is_ranged(self) -> bool:
        """Whether a range was requested."""
        return self.from_ms is not None or self.to_ms is not None

    @field_validator("to_ms")
    @classmethod
    def _is_later(cls, value: int | None, info: ValidationInfo) -> int | None:
        start = info.data.get("from_ms")
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


def sorted_columns(wanted: Sorted, first: Expression | F, *rest: Expression | F) -> Sequence[OrderBy]:
    """Return the order of a list: the first column in the requested direction; unknown values come last."""
    turned = OrderBy(first, descending=wanted.descending, nulls_last=True)
    return [turned, *(OrderBy(column, nulls_last=True) for column in rest)]


def rank_of(column: str, values: Sequence[object]) -> Case:
    """Return a column's place in a sequence of values, as SQL; other values come last."""
    ranks = (When(**{column: value}, then=Value(n)) for n, value in enumerate(values))
    return Case(*ranks, default=Value(len(values)), output_field=IntegerField())


def parameter_fields(criteria: type[Criteria]) -> Mapping[str, FieldInfo]:
    """Return the fields of a list by their parameters."""
    return {field.alias or name: field for name, field in criteria.model_fields.items()}


def parameter_choices(criteria: type[Criteria], parameter: str) -> Sequence[str]:
    """Return the allowed values of a parameter, in the order of its type; empty if any value is valid."""
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
    """Return the conditions of a filter that have a value."""
    return {name: value for name, value in conditions.items() if value not in ("", None)}


def starts_in_range(wanted: Ranged, field: str) -> Q:
    """Return the condition that a row's instant is in the range; fields in milliseconds end in `_ms`."""
    condition = Q()
    if wanted.from_ms is not None:
        condition &= Q(**{f"{field}__gte": _comparable(field, wanted.from_ms)})
    if wanted.to_ms is not None:
        condition &= Q(**{f"{field}__lt": _comparable(field, wanted.to_ms)})
    return condition


def overlaps_range(wanted: Ranged, start: str, end: str) -> Q:
    """Return the condition that a row's span overlaps the range; a row without an end still lasts."""
    condition = Q()
    if wanted.from_ms is not None:
        condition &= Q(**{end: None}) | Q(**{f"{end}__gte": _comparable(end, wanted.from_ms)})
    if wanted.to_ms is not None:
        condition &= Q(**{f"{start}__lt": _comparable(start, wanted.to_ms)})
    return condition


def _comparable(field: str, ms: int) -> int | datetime:
    return ms if field.endswith("_ms") else _EPOCH + timedelta(milliseconds=ms)


Row = TypeVar("Row")
Other = TypeVar("Other")
#: A page's number; text as in a URL, None for the first page.
Number = int | str | None


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """A page with some of `total` rows; `number` counts from 1."""

    items: Sequence[Row]
    total: int
    number: int
    size: int
    #: The number of pages, at least one.
    pages: int
    #: False if more than `total` rows match, because counting has a limit.
    whole: bool = True

    @property
    def first(self) -> int:
        """Return the position of this page's first row, counted from 1."""
        return (self.number - 1) * self.size + 1

    @property
    def last(self) -> int:
        """Return the position of this page's last row."""
        return self.first + len(self.items) - 1

    def with_items(self, items: Sequence[Other]) -> "Page[Other]":
        return Page(items, self.total, self.number, self.size, self.pages, self.whole)


def page_of(rows: QuerySet[Any, Row] | Sequence[Row], number: Number, size: int) -> Page[Row]:
    """Return a page of ordered rows: the last for a number beyond the end, the first for an invalid one."""
    page = Paginator(rows, size).get_page(number)
    total = page.paginator.count
    return Page(list(page.object_list), total, page.number, size, page.paginator.num_pages)
