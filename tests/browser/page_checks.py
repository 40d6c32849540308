"""What holds for every page: axe finds nothing in both colour schemes, and no width scrolls sideways.

`make test` examines a page wide and light by axe, and its width on a phone; `make test-matrix` all others.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page
from playwright.sync_api import TimeoutError as TooLate

AXE = (Path(__file__).parent / "vendor" / "axe-4.14.1.min.js").read_text()
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
#: Widths, and the colour schemes that axe examines there.
Looks = Mapping[int, Sequence[Scheme]]
GATE_LOOKS: Looks = {1280: ("light",), 390: ()}
#: From a large monitor to the smallest phone: charts and tables that are drawn wide must shrink.
ALL_LOOKS: Looks = {1280: SCHEMES, 2560: (), 1100: (), 1001: (), 768: (), 390: SCHEMES, 320: ()}
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
_OPEN_FOLDS = "document.querySelectorAll('#content details:not(.menu)').forEach((fold) => (fold.open = true))"
_OPEN_MENUS = "(open) => document.querySelectorAll('details.menu').forEach((menu) => (menu.open = open))"
_FITS = "(width) => document.documentElement.scrollWidth <= width"
#: Charts are drawn again a moment after the width has changed.
_FITS_WITHIN_MS = 10_000


def states(first: str, *rest: str) -> list[Any]:
    """Return states of the data that pages are examined in: `make test` has the first; `make test-matrix` has
    each, at every width.
    """
    everywhere = (
        pytest.param(each, marks=pytest.mark.matrix, id=f"{each}-every width") for each in (first, *rest)
    )
    return [first, *everywhere]


def axe_violations(page: Page, rules: list[str] = _TAGS, within: str = "html") -> list[str]:
    """Return what axe finds on the page as it is, or within one of its elements, one text per rule."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE)
    violations: list[str] = page.evaluate(_VIOLATIONS, [rules, within])
    return violations


def page_problems(page: Page, looks: Looks) -> list[str]:
    """Examine the open page, its folds opened. Leaves it as the last of the looks."""
    page.evaluate(_OPEN_FOLDS)
    problems = []
    rules = _TAGS
    for width, schemes in looks.items():
        page.set_viewport_size({"width": width, "height": 740})
        problems += [f"scrolls sideways at {width}"] * (not fits(page, width))
        page.evaluate(_OPEN_MENUS, True)
        problems += [f"a menu is cut off at {width}"] * (not fits(page, width))
        page.evaluate(_OPEN_MENUS, False)
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            problems += [f"{scheme} at {width}: {violation}" for violation in axe_violations(page, rules)]
            rules = _COLOURS
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


def problems_of_pages(page: Page, paths: Mapping[str, str], looks: Looks) -> dict[str, list[str]]:
    """Load each path and examine it; returns the problems of those that have some, by the path's name."""
    problems: dict[str, Any] = {}
    # Once for all pages: half a megabyte goes to the browser by way of another process.
    page.add_init_script(AXE)
    for name, path in paths.items():
        page.set_viewport_size({"width": next(iter(looks)), "height": 740})
        page.emulate_media(color_scheme="light")
        page.goto(path)
        if found := page_problems(page, looks):
            problems[name] = found
    return problems
