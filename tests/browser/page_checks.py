"""What holds for every page: axe finds nothing in both colour schemes, no width scrolls sideways, a phone
shows of each table what a wide screen shows, and no other host is asked.

`make test` examines a page wide and light by axe, and its width on a phone; `make test-matrix` all others.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Page
from playwright.sync_api import TimeoutError as TooLate

AXE = (Path(__file__).parent / "vendor" / "axe-4.14.1.min.js").read_text()
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
#: Widths, and the colour schemes that axe examines there.
Looks = Mapping[int, Sequence[Scheme]]
PHONE = 390
GATE_LOOKS: Looks = {1280: ("light",), PHONE: ()}
#: From a large monitor to the smallest phone: charts and tables that are drawn wide must shrink.
ALL_LOOKS: Looks = {1280: SCHEMES, 2560: (), 1100: (), 1001: (), 768: (), PHONE: SCHEMES, 320: ()}
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
#: The one kind of rules that depends on the colour scheme.
_COLOURS = ["color-contrast"]
#: Of a chart its frame, which has its words; what Plotly draws is an image with a table beside it.
_VIOLATIONS = """
async ([rules, within]) => {
  const examined = { include: [within], exclude: [[".main-svg"]] };
  // The one rule that runs and wants something loaded is about audio and video.
  const preload = { assets: ["media"] };
  const result = await axe.run(examined, { resultTypes: ["violations"], runOnly: rules, preload });
  const text = (node) => node.html + " " + node.any.map((check) => check.message);
  return result.violations.map((rule) => `${rule.id}: ${rule.nodes.slice(0, 3).map(text).join(" | ")}`);
}
"""
#: Of each table of the page: of each column its header and the class that names it; of each row the same,
#: with the values (ages and instants by attribute, since they change), and the words that are shown on narrow
#: screens alone.
_TABLES = """
() => [...document.querySelectorAll("#content table")].map((table) => {
  const shown = (node) => {
    for (let at = node; at && at !== table; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.display === "none" || style.clipPath !== "none") return false;
    }
    return true;
  };
  const column = (cell) => [...cell.classList].find((name) => name.startsWith("col-")) || "";
  const words = (cell, only) => {
    const found = [];
    const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const parent = walk.currentNode.parentElement;
      const text = walk.currentNode.textContent.trim();
      if (!text || !shown(parent) || parent.closest(".visually-hidden")) continue;
      if (Boolean(parent.closest(".narrow-only")) !== only) continue;
      const timed = parent.closest("time, [data-since], [data-until]");
      found.push(timed ? timed.outerHTML.replace(/>[^<]*</g, "><") : text);
    }
    return found;
  };
  const heads = [...table.querySelectorAll("thead tr:last-child > *")];
  return {
    name: table.querySelector("caption")?.textContent.trim() || table.className,
    heads: heads.map((cell) => ({
      column: column(cell), words: cell.textContent.trim(), shown: shown(cell),
    })),
    rows: [...table.querySelectorAll("tbody tr")].slice(0, 40).map((row) =>
      [...row.children].map((cell) => ({
        column: column(cell), shown: shown(cell), span: cell.colSpan,
        number: cell.classList.contains("number"),
        values: words(cell, false), labels: words(cell, true),
      }))),
  };
})
"""
_OPEN_FOLDS = "document.querySelectorAll('#content details:not(.menu)').forEach((fold) => (fold.open = true))"
_OPEN_MENUS = "(open) => document.querySelectorAll('details.menu').forEach((menu) => (menu.open = open))"
_FITS = "(width) => document.documentElement.scrollWidth <= width"
#: Charts are drawn again a moment after the width has changed.
_FITS_WITHIN_MS = 10_000


def states(*kinds: str, more: Iterable[str] = ()) -> list[Any]:
    """Return kinds of data that pages are examined in: these in `make test`; these and more, at every width,
    in `make test-matrix`.
    """
    everywhere = [
        pytest.param(kind, marks=pytest.mark.matrix, id=f"{kind}-every width") for kind in (*kinds, *more)
    ]
    return [*kinds, *everywhere]


def axe_violations(page: Page, rules: list[str] = _TAGS, within: str = "html") -> list[str]:
    """Return what axe finds on the page as it is, or within one of its elements, one text per rule."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE)
    violations: list[str] = page.evaluate(_VIOLATIONS, [rules, within])
    return violations


def page_problems(page: Page, looks: Looks, *, compared: bool = False) -> list[str]:
    """Examine the open page, its folds opened. Leaves it as the last of the looks."""
    page.evaluate(_OPEN_FOLDS)
    problems = []
    rules = _TAGS
    for width, schemes in looks.items():
        wide = wide_tables(page) if compared and width == PHONE else []
        page.set_viewport_size({"width": width, "height": 740})
        problems += [f"scrolls sideways at {width}"] * (not fits(page, width))
        page.evaluate(_OPEN_MENUS, True)
        problems += [f"a menu is cut off at {width}"] * (not fits(page, width))
        page.evaluate(_OPEN_MENUS, False)
        problems += table_problems(wide, page) if wide else []
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            problems += [f"{scheme} at {width}: {violation}" for violation in axe_violations(page, rules)]
            rules = _COLOURS
    return problems


def problems_of_what_is_open(page: Page, looks: Looks, within: str = "html") -> list[str]:
    """Examine a page on which a dialog or a menu is open, as it is."""
    problems = []
    for width, schemes in looks.items():
        page.set_viewport_size({"width": width, "height": 900})
        problems += [f"scrolls sideways at {width}"] * (not fits(page, width))
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            problems += axe_violations(page, within=within)
    return problems


def fits(page: Page, width: int) -> bool:
    """Whether nothing is beyond the right edge, once charts and menus have settled."""
    if page.evaluate(_FITS, width):
        return True
    try:
        page.wait_for_function(_FITS, arg=width, timeout=_FITS_WITHIN_MS)
    except TooLate:
        return False
    return True


def wide_tables(page: Page) -> Any:
    """Return the tables of a page as a wide screen shows them, from now on the same figures."""
    page.set_viewport_size({"width": 1600, "height": 740})
    # Else they may be fetched anew before the phone's are read; narrow, the button is in the menu.
    pause = page.get_by_role("button", name="Pause", exact=True)
    if pause.is_visible():
        pause.click()
    page.evaluate(_OPEN_FOLDS)
    return page.evaluate(_TABLES)


def table_problems(wide: Any, page: Page) -> Iterator[str]:
    """Compare the tables of a page with those that it has as on a phone, its folds open."""
    for table, small in zip(wide, page.evaluate(_TABLES), strict=True):
        found = (*_column_problems(table), *_column_problems(small), *_value_problems(table, small))
        yield from (f"table {table['name']}: {problem}" for problem in (*found, *_nameless_figures(small)))


def _column_problems(table: Any) -> Iterator[str]:
    """Each row has the columns of the header, and where the header is shown, shows the same ones."""
    for row in table["rows"]:
        if any(cell["span"] > 1 for cell in row):
            continue
        if len(row) != len(table["heads"]):
            yield f"{len(row)} cells under {len(table['heads'])} heads"
        for head, cell in zip(table["heads"], row, strict=False):
            if head["column"] and cell["column"] and head["column"] != cell["column"]:
                yield f"{cell['column']} is under {head['words']}"
            if any(each["shown"] for each in table["heads"]) and head["shown"] != cell["shown"]:
                yield f"{head['words']} is shown in one of head and row: {cell['values']}"


def _value_problems(wide: Any, narrow: Any) -> Iterator[str]:
    """What a phone shows of a cell is what a wide screen shows of it, or less."""
    for row, small in zip(wide["rows"], narrow["rows"], strict=True):
        for cell, other in zip(row, small, strict=True):
            if other["shown"] and cell["shown"] and not set(other["values"]) <= set(cell["values"]):
                yield f"a phone shows {other['values']} for {cell['values']}"


def _nameless_figures(narrow: Any) -> set[str]:
    """Headers that are hidden, of figures that have no words of their own beside them."""
    if not narrow["heads"] or any(head["shown"] for head in narrow["heads"]):
        return set()
    return {
        f"a figure without its name, {narrow['heads'][number]['words']}"
        for row in narrow["rows"]
        for number, cell in enumerate(row)
        if cell["shown"] and cell["number"] and cell["values"] not in ([], ["—"]) and not cell["labels"]
    }


def problems_of_pages(
    page: Page, paths: Mapping[str, str], looks: Looks, compared: Container[str] = ()
) -> dict[str, list[str]]:
    """Load each path and examine it; returns the problems of those that have some, by the path's name.

    Of those that are `compared`, tables are the same on a phone.
    """
    problems: dict[str, list[str]] = {}
    own = (f"{urljoin(page.url, '/')}", "data:")
    others: list[str] = []
    page.on("request", lambda request: request.url.startswith(own) or others.append(request.url))
    # Once for all pages: half a megabyte goes to the browser by way of another process.
    page.add_init_script(AXE)
    for name, path in paths.items():
        page.set_viewport_size({"width": next(iter(looks)), "height": 740})
        page.emulate_media(color_scheme="light")
        page.goto(path)
        if found := [*page_problems(page, looks, compared=name in compared), *others]:
            problems[name] = found
        others.clear()
    return problems
