"""The query string of a list. Invalid values fall back to their defaults, and the page names them."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BeforeValidator, Field, ValidationError

from dashboard.runtime.criteria import Criteria, parameter_choices, parameter_fields
from dashboard.web.forms import time_ranges

_Size = Literal[50, 100, 200]
SIZES = get_args(_Size)
_LARGEST = 10**18
#: The expected values of parameters that are neither words nor plain numbers.
_EXPECTED = {
    "page": "a page number",
    "before": "a place in this list",
    "min_age_s": "a number of seconds",
}
#: Fields of a form that are not parameters.
_OWN = frozenset({"ignored", "given"})
#: Parameters of a part of a list or of its order, which do not narrow it.
_NOT_NARROWING = frozenset(
    {
        *_OWN,
        "cluster",
        "since",
        "unfolded",
        "fold",
        "zoom",
        "pipeline",
        "batches",
        "internal",
        "sort",
        "dir",
        "page",
        "size",
        "before",
    }
)

#: The place where a list continues: after this instant and row.
Place = tuple[int, int]


class ListQuery(Criteria):
    """A query string of a list; `ignored` describes its invalid parameters, `given` are the valid ones."""

    ignored: tuple[str, ...] = ()
    given: Mapping[str, str] = {}

    @property
    def narrowed(self) -> bool:
        """Return whether a parameter other than cluster and time narrows the list."""
        fields = type(self).model_fields.keys() - _NOT_NARROWING
        return any(getattr(self, name) not in ("", None) for name in fields)


def _digits(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 9 else value


def split_place(value: object) -> object:
    """Return the numbers of a place, `12-7`; values other than text unchanged."""
    return tuple(value.split("-")) if isinstance(value, str) else value


class NumberedList(ListQuery):
    """A list whose pages have numbers."""

    page: int = Field(1, ge=1, lt=10**8)
    size: Annotated[_Size, BeforeValidator(_digits)] = 50


class ListByRow(ListQuery):
    """A list, the newest first, that continues after the number of a row."""

    before: int | None = Field(None, ge=0, lt=_LARGEST)


RowNumber = Annotated[int, Field(ge=0, lt=_LARGEST)]


class ListByInstant(ListQuery):
    """A list, the newest first, that continues after an instant and the number of a row."""

    before: Annotated[tuple[RowNumber, RowNumber], BeforeValidator(split_place)] | None = None


Asked = TypeVar("Asked", bound=ListQuery)


def parse_query(query: Mapping[str, str], form: type[Asked], cluster: str, clusters: Sequence[str]) -> Asked:
    """Return the parsed query string; `cluster` is the page's cluster, "" for all of `clusters`."""
    names = [name for name in parameter_fields(form) if name not in _OWN | form.api_only]
    values = {name: value for name in names if (value := _clean(name, query.get(name, "")))}
    ignored = [
        _unknown(name, names) for name in query if name not in {*names, "cluster", *time_ranges.PARAMETERS}
    ]
    if (asked := values.pop("cluster", "")) and asked not in clusters:
        ignored.append(f"cluster “{clip_value(asked)}” is not configured")
    for name in _wrong(form, values):
        ignored.append(_problem(form, name, values.pop(name)))
    given = values | ({"cluster": cluster} if cluster and cluster == asked else {})
    return form.model_validate({**values, "cluster": cluster, "ignored": ignored, "given": given})


def _unknown(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(clip_value(name), names, n=1)
    hint = f" (nearest: {near[0]})" if near else ""
    return f"“{clip_value(name)}” is not a parameter of this list{hint}"


def _clean(name: str, value: str) -> str:
    # No name contains a NUL, and PostgreSQL rejects it.
    text = value.replace("\0", "")
    return text.strip() if name == "q" else text


def _wrong(form: type[ListQuery], values: Mapping[str, str]) -> Sequence[str]:
    try:
        form.model_validate(values)
    except ValidationError as error:
        names = dict.fromkeys(str(detail["loc"][0]) for detail in error.errors())
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
    """Return a value of an address, printable and short enough for a sentence."""
    shown = "".join(char if char.isprintable() else "�" for char in value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"


#: Words of a column, sort key or "", class, and the direction with the interesting end first.
Heading = tuple[str, str, str, str]


def table_columns(headings: Iterable[Heading], sort: str, *, descending: bool) -> Sequence[Mapping[str, Any]]:
    """Return a table's columns; a click on the sorted one reverses its direction."""
    columns = []
    for words, by, css, first in headings:
        here = bool(by) and by == sort
        turned = "asc" if descending else "desc"
        order = ("descending" if descending else "ascending") if here else ""
        columns.append(
            {"words": words, "sort": by, "css": css, "sorted": order, "dir": turned if here else first}
        )
    return columns
