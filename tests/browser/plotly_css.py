"""Dumps the style sheet that Plotly makes for itself, so that it can be served as a file.

Plotly inserts its rules into a `<style>` element, which the content security policy forbids; where a sheet
with the id `plotly.js-style-global` and the class `no-inline-styles` is there already, it inserts none. Run
after a change of the bundle, and put the file's SHA-256 into the manifest:

    python -m tests.browser.plotly_css
"""

import hashlib
import json
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.chromium import ARGUMENTS, executable

VENDOR = Path(__file__).resolve().parents[2] / "dashboard" / "static" / "vendor"
PACKAGE = "plotly.js-cartesian-dist-min"
_RULES = """
() => {
  const { sheet } = document.getElementById("plotly.js-style-global");
  return [...sheet.cssRules].map((rule) => rule.cssText).join("\\n");
}
"""


def entry(kind: str) -> dict[str, str]:
    """Return the manifest's entry of Plotly's "js" or "css"."""
    entries: list[dict[str, str]] = json.loads((VENDOR / "manifest.json").read_text())
    (found,) = [each for each in entries if each["package"] == PACKAGE and each["file"].endswith(f".{kind}")]
    return found


def dump(browser: Browser) -> str:
    """Return the rules of the vendored bundle, in their order, one a line."""
    context = browser.new_context(bypass_csp=True)
    try:
        page = context.new_page()
        page.add_script_tag(path=VENDOR / entry("js")["file"])
        rules: str = page.evaluate(_RULES)
        return rules + "\n"
    finally:
        context.close()


def main() -> None:
    """Write the sheet beside the bundle, and print what its entry in the manifest must say."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        text = dump(browser)
        browser.close()
    (VENDOR / entry("css")["file"]).write_text(text)
    print(entry("css")["file"], hashlib.sha256(text.encode()).hexdigest())


if __name__ == "__main__":
    main()
