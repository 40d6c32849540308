"""The table of pages: address, view and place. The module of a noun declares its pages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from django.http import HttpResponse

from fenceline.formatting import upper_first

#: The part of an address with the cluster, below a list.
_CLUSTER = "<str:cluster>"


class Hit(NamedTuple):
    """One hit of a search: its name, its address, and a few further words."""

    name: str
    url: str
    detail: str = ""


MOST_HITS = 6
#: Finds rows by a cluster, "" for all, and a text.
Search = Callable[[str, str], Iterable[Hit]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page, a part of one, or a form to post; only pages have a place in the navigation."""

    name: str
    path: str
    view: Callable[..., HttpResponse]
    _: KW_ONLY
    #: The route of the parent page; "" for pages of the sidebar.
    parent: str = ""
    #: The name of its rows or of its entry in the sidebar, such as "consumer groups"; "" for `name`.
    plural: str = ""
    #: In the sidebar: the key after `g`, and the heading above it.
    key: str = ""
    heading: str = ""
    #: The permission of `dashboard.system.access` that the sidebar requires to show it; "" for all roles.
    permission: str = ""
    #: The noun whose collectors it depends on (`collector_names`); "" for its parent's.
    shows: str = ""
    #: The subject of its list's text filter; "" without one.
    searched: str = ""
    #: Finds its rows for Ctrl K and `/find`.
    search: Search | None = None
    #: Whether the API has the same list, so that the page offers it as a file.
    has_files: bool = False
    #: Whether its rows have an instant: a Live page lists all stored rows, a range only its own.
    is_ranged: bool = False
    #: Whether the API lists only open ones by default.
    lists_open: bool = False
    #: The note about a past range on a page of the present; "" if the page follows the range.
    as_of_now: str = ""

    @property
    def noun(self) -> str:
        return self.plural or self.name

    @property
    def title(self) -> str:
        """Return its title outside of the navigation."""
        return upper_first(self.noun)

    @property
    def parent_paths(self) -> Sequence[str]:
        """Return the paths between its list and itself, so that a shortened address leads to the list."""
        parts = self.path.split("/")
        return ["/".join(parts[:n]) for n in range(2, len(parts)) if parts[1] == _CLUSTER]


#: By name, in the order of the sidebar; `dashboard.web.pages` fills it.
ROUTES: dict[str, PageRoute] = {}


def sidebar_routes() -> Sequence[PageRoute]:
    return [route for route in ROUTES.values() if route.key]


def route_trail(name: str) -> Iterator[PageRoute]:
    """Yield the route of a name and its parents, up to one of the sidebar; none for unknown names."""
    while route := ROUTES.get(name):
        yield route
        name = route.parent


def asked_number(asked: str) -> int | None:
    """Return the number in a text such as “#117” or “117”, None for other texts."""
    digits = asked.removeprefix("#")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else None
