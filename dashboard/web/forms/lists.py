"""The query string of a list, and the filters above it: a chip, with an address, for each choice.

Invalid values fall back to their defaults, and the page names them.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

from django.http import QueryDict
from pydantic import BeforeValidator, Field, ValidationError

from dashboard.labels.status import StatusLabel
from dashboard.runtime.criteria import Criteria, parameter_choices, parameter_fields
from dashboard.web.addresses import query_without
from dashboard.web.forms import time_ranges
from fenceline.formatting import format_duration

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
#: Filters without their own chips: the field, its parameter and its words.
_TYPED = (
    ("application", "application", "application"),
    ("actor", "who", "who"),
    ("family", "family", "family"),
    ("min_age_s", "min_age_s", "open for at least"),
    ("q", "q", "search"),
)
Choices = Collection[str] | Mapping[str, int]


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
        words = parameter_choices(form, name)
        right = f"none of {', '.join(words)}" if words else f"not {_EXPECTED.get(name, 'a number')}"
        ignored.append(f"{name} “{clip_value(values.pop(name))}” is {right}")
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


@dataclass(frozen=True, slots=True)
class Chip:
    """One choice; `mark` is the tone of its mark, `number` the number of its rows, None if not counted."""

    words: str
    href: str
    is_chosen: bool
    mark: str = ""
    title: str = ""
    number: int | None = None


@dataclass(frozen=True, slots=True)
class ChipMenu:
    """A menu for choices that are too many for chips: the label of the parameter, and the chosen one."""

    words: str
    chosen: str
    chips: Sequence[Chip]


@dataclass(frozen=True, slots=True)
class ChipRow:
    """The chips of one line; `label` names it for screen readers, `words` stand before it."""

    label: str
    chips: Sequence[Chip]
    words: str = ""
    menus: Sequence[ChipMenu] = ()


def plain_labels(words: Mapping[str, str]) -> Mapping[str, StatusLabel]:
    """Return labels of choices without a mark: words by choice."""
    return {choice: StatusLabel(text, "", "") for choice, text in words.items()}


def marked_labels(choices: Iterable[str]) -> Mapping[str, StatusLabel]:
    """Return labels of choices with a mark of the same name: severities, states."""
    return {choice: StatusLabel(choice, choice, "") for choice in choices}


class Filters:
    """Makes the chips of one page of a list from its query string and its valid parameters."""

    def __init__(self, query: QueryDict, wanted: object) -> None:
        self._query, self._wanted = query, wanted

    def row(
        self,
        parameter: str,
        choices: Choices,
        looks: Mapping[str, StatusLabel] = MappingProxyType({}),
        *,
        every: str = "all",
        words: str = "",
        menus: Sequence[ChipMenu] = (),
        drops: Sequence[str] = (),
    ) -> ChipRow:
        """Return the row of a parameter: `every` for no choice, then the choices.

        A mapping has the number of rows of each choice. Without an `every` a click on the chosen one clears
        it. `drops` are further parameters that a click drops.
        """
        chips = self.chips(parameter, choices, looks, every=every, drops=drops)
        return ChipRow(f"Filter by {words or parameter}", chips, "" if every else words, menus)

    def menu(self, parameter: str, words: Mapping[str, str]) -> ChipMenu:
        """Return the menu of a parameter, from the words of its choices."""
        chips = self.chips(parameter, list(words), plain_labels(words), every=f"any {parameter}")
        return ChipMenu(parameter, words.get(self._chosen(parameter), "any"), chips)

    def chips(
        self,
        parameter: str,
        choices: Choices,
        looks: Mapping[str, StatusLabel],
        *,
        every: str,
        drops: Sequence[str] = (),
    ) -> Sequence[Chip]:
        """Return the chips without their row."""
        chosen = self._chosen(parameter)
        cleared = self._href(parameter, None, drops)
        chips = [Chip(every, cleared, not chosen)] if every else []
        for choice in choices:
            words, tone, means = looks.get(choice, StatusLabel(choice, "", ""))
            number = choices[choice] if isinstance(choices, Mapping) else None
            is_cleared = choice == chosen and not every
            href = cleared if is_cleared else self._href(parameter, choice, drops)
            chips.append(Chip(words, href, choice == chosen, tone, means, number))
        return chips

    def clears(self) -> Sequence[Chip]:
        """Return a chip for each filter without its own chips; a click on it clears the filter."""
        return [
            Chip(f"{words} {_shown(value)}", self._href(parameter, None, ()), is_chosen=True)
            for field, parameter, words in _TYPED
            if (value := getattr(self._wanted, field, None)) not in ("", None)
        ]

    def _chosen(self, parameter: str) -> str:
        value = getattr(self._wanted, parameter)
        return str(value or "") if value is not True else "true"

    def _href(self, parameter: str, value: str | None, drops: Sequence[str]) -> str:
        query = query_without(self._query, (*drops, parameter))
        if value is not None:
            query[parameter] = value
        return f"?{query.urlencode()}"


def _shown(value: object) -> str:
    if isinstance(value, int):
        return format_duration(1_000 * value)
    return f"“{clip_value(str(value))}”"


#: Further parameters of a tab: page numbers of its lists.
_OF_A_TAB = ("page", "parts")


def chosen_tab(query: QueryDict, words: Mapping[str, str]) -> str:
    """Return the tab in an address; the first one without a valid tab."""
    asked = query.get("tab", "")
    return asked if asked in words else next(iter(words))


def detail_tabs(query: QueryDict, words: Mapping[str, str]) -> Sequence[Mapping[str, object]]:
    """Return the tabs of a detail page (`components/tabs.html`), the first of them without a parameter."""
    current, first = chosen_tab(query, words), next(iter(words))
    return [
        {
            "name": name,
            "words": label,
            "url": _url(query, "" if name == first else name),
            "is_current": name == current,
        }
        for name, label in words.items()
    ]


def _url(query: QueryDict, name: str) -> str:
    wanted = query.copy()
    for parameter in ("tab", *_OF_A_TAB):
        wanted.pop(parameter, None)
    if name:
        wanted["tab"] = name
    return f"?{wanted.urlencode()}#tabs"
