"""`python -m tests.unit.excluded_tests`: tests that `make test` leaves out, as JSON {file: [marker]}."""

import json
import sys

import pytest

from tests import excluded


class Collected:
    """Keeps what the plugin has noted."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take every file."""
        found = excluded.markers_by_file(session.config)
        self.files = {file: sorted(markers) for file, markers in found.items()}


def main() -> None:
    """Collect, and print."""
    collected = Collected()
    status = pytest.main(["--collect-only", "-qq", "--no-summary"], [collected])
    print("\n" + json.dumps(collected.files))
    sys.exit(status)


if __name__ == "__main__":
    main()
