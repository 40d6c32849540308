"""Proves in Chromium that on a phone every table shows the same value for a column as on a wide screen, and
that each figure whose header is not shown has words beside it that say what it is."""

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Opener, Server
from tests.web.factories import FLINK_IDENT

#: By the kind of data: the pages with lists and tables.
PAGES = {
    "held": (
        "/", "/transactions", "/partitions?internal=1", "/groups", "/recoveries",
        "/partitions/prod/payments/0", "/groups/prod/billing", "/rules", "/system",
        "/scenes", "/events?last=24h", "/transactions/prod/inventory-sync-stuck-3",
    ),
    "queries": ("/queries", "/flink-jobs", f"/flink-jobs/prod/{FLINK_IDENT}"),
    "alerts": ("/alerts", "/channels", "/deliveries", "/silences", "/access"),
    "acting": ("/actions", "/audit", "/events"),
}  # fmt: skip
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


def tables(page: Page, width: int) -> Any:
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("document.querySelectorAll('#content details').forEach((each) => (each.open = true))")
    return page.evaluate(_TABLES)


def assert_columns_fit(table: Any, where: str) -> None:
    """Each row has the columns of the header, and where the header is shown, shows the same ones."""
    for row in table["rows"]:
        if any(cell["span"] > 1 for cell in row):
            continue
        assert len(row) == len(table["heads"]), where
        for head, cell in zip(table["heads"], row, strict=True):
            if head["column"] and cell["column"]:
                assert head["column"] == cell["column"], (where, head["words"])
            if any(each["shown"] for each in table["heads"]):
                assert head["shown"] == cell["shown"], (where, head["words"], cell["values"])


def assert_same_values(wide: Any, narrow: Any, where: str) -> None:
    """What a phone shows of a cell is what a wide screen shows of it, or less."""
    for row, small in zip(wide["rows"], narrow["rows"], strict=True):
        for number, (cell, other) in enumerate(zip(row, small, strict=True)):
            if other["shown"] and cell["shown"]:
                head = wide["heads"][number]["words"] if number < len(wide["heads"]) else ""
                assert set(other["values"]) <= set(cell["values"]), (where, head, other["values"])


def nameless_figures(narrow: Any) -> set[str]:
    """Headers that are hidden, of figures that have no words of their own beside them."""
    if not narrow["heads"] or any(head["shown"] for head in narrow["heads"]):
        return set()
    return {
        narrow["heads"][number]["words"]
        for row in narrow["rows"]
        for number, cell in enumerate(row)
        if cell["shown"] and cell["number"] and cell["values"] not in ([], ["—"]) and not cell["labels"]
    }


@pytest.mark.parametrize("kind", PAGES)
def test_a_phone_shows_the_same_figures_under_the_same_names(
    server: Server, opened: Opener, kind: str
) -> None:
    server("reset", kind)
    page = opened("/")
    met = 0
    nameless: set[str] = set()
    for path in PAGES[kind]:
        # Narrow, the button is in the menu.
        page.set_viewport_size({"width": 1600, "height": 900})
        page.goto(path)
        # Else its figures may be fetched anew between the two widths.
        page.get_by_role("button", name="Pause").click()
        wide, narrow = tables(page, 1600), tables(page, 390)
        for each, small in zip(wide, narrow, strict=True):
            where = f"{path}: {each['name']}"
            assert_columns_fit(each, where)
            assert_columns_fit(small, where)
            assert_same_values(each, small, where)
            nameless |= {f"{where}: {words}" for words in nameless_figures(small)}
            met += len(each["rows"])
    assert met, "no table had a row"
    assert not nameless


def test_open_for_is_empty_for_what_is_not_open(server: Server, opened: Opener) -> None:
    """It showed the age of the last update instead, on a phone alone: there nothing is shown."""
    server("reset", "held")
    page = opened("/transactions?state=CompleteCommit", viewport={"width": 390, "height": 844})
    cells = page.locator("table.ids tbody td.col-age")
    assert cells.count() > 10
    assert set(cells.all_inner_texts()) == {""}
