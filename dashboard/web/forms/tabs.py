"""Tabs of a detail page, selected by the parameter `tab` of the address, and tabs between pages."""

from collections.abc import Mapping
from typing import NamedTuple

from django.http import QueryDict

#: Further parameters of a tab: page numbers of its lists.
_OF_A_TAB = ("page", "parts")


class Tab(NamedTuple):
    """A link to a tab; `name` is its name in addresses."""

    name: str
    words: str
    url: str
    is_current: bool


def chosen_tab(query: QueryDict, words: Mapping[str, str]) -> str:
    """Return the tab in an address; the first one without a valid tab."""
    asked = query.get("tab", "")
    return asked if asked in words else next(iter(words))


def detail_tabs(query: QueryDict, words: Mapping[str, str]) -> list[Tab]:
    """Return the tabs of a detail page, the first of them without a parameter."""
    current, first = chosen_tab(query, words), next(iter(words))
    return [
        Tab(name, label, _url(query, "" if name == first else name), name == current)
        for name, label in words.items()
    ]


def _url(query: QueryDict, name: str) -> str:
    wanted = query.copy()
    for parameter in ("tab", *_OF_A_TAB):
        wanted.pop(parameter, None)
    if name:
        wanted["tab"] = name
    return f"?{wanted.urlencode()}#tabs"
