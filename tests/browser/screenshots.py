"""Takes the pictures of the README (`make screenshots`) of the browser tests' own server and data."""

import hashlib
import json
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import ROOT, Server, sign_in
from tests.chromium import ARGUMENTS, executable

FOLDER = ROOT / "docs" / "screenshots"
#: Of which release each picture is, and the digest of the templates that it shows.
TAKEN = FOLDER / "taken.json"
SIZE = {"width": 1280, "height": 860}


class Picture(NamedTuple):
    """One file of FOLDER: what `Server("reset", data)` fills in, the page, and whether to open its
    first row."""

    name: str
    data: str
    path: str
    opens_row: bool = False

    def digest(self) -> str:
        """Return the digest of the templates of its page, with those that every page has."""
        folder = self.path.split("/")[1].partition("?")[0] or "overview"
        templates = ROOT / "templates"
        files = [templates / "base.html", *templates.glob("components/*"), *templates.glob(f"{folder}/*")]
        return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()[:16]


PICTURES = (
    Picture("overview", "incidents", "/"),
    Picture("transaction", "busy", "/transactions/prod/inventory-sync-stuck-3"),
    Picture("partition", "held", "/partitions/prod/payments/0"),
    Picture("query", "queries", "/queries?q=orders_enrich", opens_row=True),
    Picture("alerts", "alerts", "/alerts"),
    Picture("action", "acting", "/actions", opens_row=True),
)


def release() -> str:
    """Return the version of this checkout."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def main() -> None:
    """Replace every picture."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Path(folder))
        try:
            server.start()
            chromium = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
            _take_all(server, chromium)
            chromium.close()
        finally:
            server.stop()
    taken = {picture.name: {"release": release(), "templates": picture.digest()} for picture in PICTURES}
    TAKEN.write_text(json.dumps(taken, indent=1) + "\n")


def _take_all(server: Server, chromium: Browser) -> None:
    page = chromium.new_page(base_url=server.url, viewport=SIZE, color_scheme="light")
    page.goto("/login/")
    sign_in(page)
    page.wait_for_url("**/")
    for picture in PICTURES:
        server("reset", picture.data)
        if picture.data in ("held", "queries"):
            server("hour")
        # The tests' data are current for some minutes; a picture shows its own time.
        server("seen", 0)
        page.goto(picture.path)
        if picture.opens_row:
            page.goto(page.locator("a[data-row]").first.get_attribute("href") or "")
        page.locator('#live[data-socket="up"]').wait_for()
        page.locator('[aria-busy="true"]').wait_for(state="detached")
        for plot in page.locator(".plot").all():
            # Charts below the picture are drawn when they come into view.
            box = plot.bounding_box()
            if box is not None and box["y"] < SIZE["height"]:
                plot.locator(".main-svg").first.wait_for(state="attached")
        page.screenshot(path=FOLDER / f"{picture.name}.png")
        print(f"docs/screenshots/{picture.name}.png")


if __name__ == "__main__":
    main()
