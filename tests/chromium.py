"""The browser of the tests: Debian's Chromium, kept from calling anybody."""

import shutil

from playwright.sync_api import expect

# A deadline, not a figure: on a busy machine a page takes its time.
expect.set_options(timeout=60_000)

#: What a reader's browser has, but for the outside.
USUAL_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ARGUMENTS = [
    *USUAL_ARGUMENTS,
    # One page at a time: processes and threads beside its own only cost their start.
    "--in-process-gpu",
    # No page lives long enough to earn what an optimizing compiler costs.
    "--js-flags=--single-threaded --no-opt --no-maglev",
]


def executable() -> str:
    """Return the path of Chromium; `make test` installs one or says what to do."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    assert path, f"the browser tests need one of these on PATH: {', '.join(names)}"
    return path
