"""The query string of a list. What is wrong in it falls back to its default, and the page names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar, get_args

from django.http import HttpRequest
from pydantic import BeforeValidator, Field, ValidationError

from dashboard.runtime.criteria import Criteria, Ranged, parameter_choices, parameter_fields
from dashboard.web import page_context
from dashboard.web.forms import time_ranges

_Size = Literal[50, 100, 200]
SIZES = get_args(_Size)
#: Longer values match nothing that is kept.
_LONGEST = 1_000
_LARGEST = 10**18
#: What a parameter should be that is not one of some words.
_EXPECTED = {
    "page": "a page number",
    "before": "a place in this list",
    "min_age_s": "a number of seconds",
}
#: What chooses a part of a list, or its order, and does not narrow it.
_NOT_NARROWING = frozenset(
    {
        "ignored",
        "cluster",
        "since",
        "unfolded",
        "fold",
        "internal",
        "sort",
        "dir",
        "page",
        "size",
        "before",
    }
)

#: Where a list goes on: behind this instant and row.
Place = tuple[int, int]


class ListQuery(Criteria):
    """A query string of a list; `ignored` describes what in it could not be used."""

    ignored: tuple[str, ...] = ()

    @property
    def narrowed(self) -> bool:
        """Whether anything but the cluster and the time narrows the list."""
        fields = type(self).model_fields.keys() - _NOT_NARROWING
        return any(getattr(self, name) not in ("", None) for name in fields)


def _digits(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 9 else value


def split_place(value: object) -> object:
    """Return the numbers of a place, `12-7`, one by one; anything but a text as it is."""
    return tuple(value.split("-")) if isinstance(value, str) else value


class NumberedList(ListQuery):
    """A list whose pages have numbers."""

    page: int = Field(1, ge=1, lt=10**8)
    size: Annotated[_Size, BeforeValidator(_digits)] = 50


class ListByRow(ListQuery):
    """A list, the newest first, that goes on behind the number of a row."""

    before: int | None = Field(None, ge=0, lt=_LARGEST)


RowNumber = Annotated[int, Field(ge=0, lt=_LARGEST)]


class ListByInstant(ListQuery):
    """A list, the newest first, that goes on behind an instant and the number of a row."""

    before: Annotated[tuple[RowNumber, RowNumber], BeforeValidator(split_place)] | None = None


Asked = TypeVar("Asked", bound=ListQuery)


def read_request(request: HttpRequest, form: type[Asked]) -> Asked:
    """What the query string of a page asks for; its range of time is that of the page."""
    frame = page_context.chrome_of(request)
    asked = request.GET.dict()
    if issubclass(form, Ranged):
        asked = time_ranges.list_parameters(asked, frame.time_range)
    return parse_query(asked, form, frame.cluster, [row.name for row in frame.clusters])


def parse_query(query: Mapping[str, str], form: type[Asked], cluster: str, clusters: Sequence[str]) -> Asked:
    """What a query string asks for; `cluster` is that of the page, "" for all of `clusters`."""
    names = [name for name in parameter_fields(form) if name not in {"ignored", *form.api_only}]
    values = {name: value for name in names if (value := _clean(name, query.get(name, "")))}
    ignored = []
    if (asked := values.pop("cluster", "")) and asked not in clusters:
        ignored.append(f"cluster “{clip_value(asked)}” is not configured")
    for name in _wrong(form, values):
        ignored.append(_problem(form, name, values.pop(name)))
    return form.model_validate({**values, "cluster": cluster, "ignored": ignored})


def _clean(name: str, value: str) -> str:
    # No name holds a NUL, and PostgreSQL takes none.
    text = value.replace("\0", "")[:_LONGEST]
    return text.strip() if name == "q" else text


def _wrong(form: type[ListQuery], values: Mapping[str, str]) -> Sequence[str]:
    """Names of the values that are not what their parameter takes."""
    try:
        form.model_validate(values)
    except ValidationError as error:
        names = dict.fromkeys(str(each["loc"][0]) for each in error.errors())
        return [name for name in names if name in values]
    return []


def _problem(form: type[ListQuery], name: str, value: str) -> str:
    words = parameter_choices(form, name)
    right = f"none of {', '.join(words)}" if words else f"not {_EXPECTED.get(name, 'a number')}"
    return f"{name} “{clip_value(value)}” is {right}"


def encode_place(at: Place | None) -> str:
    """Return the place where a list continues, as a parameter; "" at its end."""
    return "" if at is None else f"{at[0]}-{at[1]}"


def clip_value(value: str) -> str:
    """A value that somebody wrote into an address, fit for a sentence."""
    shown = "".join(char if char.isprintable() else "�" for char in value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
