"""The filters above a list: a chip for each choice of a parameter, with its address."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from django.http import QueryDict

from dashboard.labels.status import StatusLabel
from dashboard.web.addresses import query_without
from dashboard.web.forms.lists import clip_value
from fenceline.formatting import format_duration

#: Filters without their own chips: the field, its parameter and its words.
_TYPED = (
    ("application", "application", "application"),
    ("actor", "who", "who"),
    ("family", "family", "family"),
    ("min_age_s", "min_age_s", "open for at least"),
    ("q", "q", "search"),
)
Choices = Collection[str] | Mapping[str, int]


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
