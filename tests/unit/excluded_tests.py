"""`python -m tests.unit.excluded_tests`: tests that `make test` leaves out, as JSON {file: [marker]}."""

from __future__ import annotations

import json
import sys

import pytest

MARKERS = ("soak", "matrix")


class Collected:
    """Notes the markers of the tests of each file."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take every test that was selected: by `soak` first, as its command does."""
        for item in session.items:
            marker = next(name for name in MARKERS if item.get_closest_marker(name))
            self.files.setdefault(item.nodeid.partition("::")[0], set()).add(marker)


def main() -> None:
    """Collect, and print."""
    collected = Collected()
    status = pytest.main(["--collect-only", "-qq", "--no-summary", "-m", " or ".join(MARKERS)], [collected])
    print("\n" + json.dumps({file: sorted(found) for file, found in collected.files.items()}))
    sys.exit(status)


if __name__ == "__main__":
    main()
