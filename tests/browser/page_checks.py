"""What holds for every page: axe finds nothing in both colour schemes, and no width scrolls sideways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page
from playwright.sync_api import TimeoutError as TooLate

AXE = (Path(__file__).parent / "vendor" / "axe-4.14.1.min.js").read_text()
#: From a large monitor to the smallest phone: charts and tables that are drawn wide must shrink.
WIDTHS = (2560, 1280, 1100, 1001, 768, 390, 320)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
#: The one kind of rules that depends on the colour scheme.
_COLOURS = ["color-contrast"]
#: Of a chart its frame, which has its words; what Plotly draws is an image with a table beside it.
_VIOLATIONS = """
async ([rules, within]) => {
  const examined = { include: [within], exclude: [[".main-svg"]] };
  const result = await axe.run(examined, { resultTypes: ["violations"], runOnly: rules });
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
    """Return states of the data that pages are examined in: `make test-matrix` has those after the first."""
    return [first, *(pytest.param(each, marks=pytest.mark.matrix) for each in rest)]


def axe_violations(page: Page, rules: list[str] = _TAGS, within: str = "html") -> list[str]:
    """Return what axe finds on the page as it is, or within one of its elements, one text per rule."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE)
    violations: list[str] = page.evaluate(_VIOLATIONS, [rules, within])
    return violations


def page_problems(page: Page) -> list[str]:
    """Examine the open page, its folds opened: light, dark, and at each width. Leaves it narrow and dark."""
    page.evaluate(_OPEN_FOLDS)
    problems = axe_violations(page)
    page.emulate_media(color_scheme="dark")
    problems += [f"dark: {violation}" for violation in axe_violations(page, _COLOURS)]
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 740})
        problems += [f"scrolls sideways at {width}"] * (not fits(page, width))
        page.evaluate(_OPEN_MENUS, True)
        problems += [f"a menu is cut off at {width}"] * (not fits(page, width))
        page.evaluate(_OPEN_MENUS, False)
    return problems


def fits(page: Page, width: int) -> bool:
    """Whether nothing is beyond the right edge, once charts and menus have settled."""
    try:
        page.wait_for_function(_FITS, arg=width, timeout=_FITS_WITHIN_MS)
    except TooLate:
        return False
    return True


def problems_of_pages(page: Page, paths: Mapping[str, str]) -> dict[str, list[str]]:
    """Load each path and examine it; returns the problems of those that have some, by the path's name."""
    problems: dict[str, Any] = {}
    for name, path in paths.items():
        page.set_viewport_size({"width": 1280, "height": 740})
        page.emulate_media(color_scheme="light")
        page.goto(path)
        if found := page_problems(page):
            problems[name] = found
    return problems
