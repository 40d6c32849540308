"""How long tests take: `make durations` measures, tests.scheduling orders the gate by it. A pytest plugin.

`durations.json` holds seconds, the longest first: `files` the sum of each unit of work, `tests` the parts of
each test that take a tenth of a second and more. What a fixture costs is in the set-up of its first test.
A run of the whole gate removes what the gate no longer has, and so does `make durations ARGS=--collect-only`,
which runs nothing. `make test-fast` leaves out what took long.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

FILE = Path(__file__).with_suffix(".json")
#: Folders whose files share what their conftest starts.
_SHARING = ("tests/browser", "tests/kafka/three", "tests/stack/room")
#: Parts of tests that take less are not worth a line. `make test-fast` leaves out what took as long by
#: itself, but for what checks the code and the documents.
LONG_S = 0.1
#: Random examples of a test then.
_FEW_EXAMPLES = 20
_CHECKS = ("tests/unit/test_architecture.py", "tests/unit/test_doc_")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that `make durations` gives."""
    parser.addoption("--record-durations", action="store_true", help=f"write what is measured to {FILE.name}")
    parser.addoption("--only-short", action="store_true", help=f"leave out what took {LONG_S} s and more")


def pytest_configure(config: pytest.Config) -> None:
    """Record where one process gets the reports of all tests; try few examples where tests are short."""
    if config.getoption("--only-short"):
        settings.register_profile("short", settings.get_profile("fenceline"), max_examples=_FEW_EXAMPLES)
        settings.load_profile("short")
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what took long, where only short tests are asked for."""
    if config.getoption("--only-short"):
        long = long_tests(read())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in long])
        items[:] = [item for item in items if item.nodeid not in long]


def long_tests(known: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the tests that took long without their fixtures, but for those that check code and documents."""
    took = {name: parts.get("call", 0) for name, parts in known["tests"].items()}
    return {name for name, seconds in took.items() if seconds >= LONG_S and not name.startswith(_CHECKS)}


class Recorder:
    """Adds up what each test takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, Counter[str]] = defaultdict(Counter)
        self.collected: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which tests there are; where workers collect, these are those that they report."""
        self.collected = {item.nodeid for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one part of one test."""
        self.seconds[report.nodeid][report.when] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Replace what the file holds of those test files that ran."""
        known = read()
        if is_whole_gate(session.config):
            known = only_of(known, self.collected or set(self.seconds))
        FILE.write_text(json.dumps(merged(known, self.seconds), indent=1) + "\n")


def is_whole_gate(config: pytest.Config) -> bool:
    """Return whether a run was asked for all tests of the gate, by no name and no other marker."""
    options = config.option
    is_all = config.args == config.getini("testpaths") and not options.keyword
    return is_all and options.markexpr in config.getini("addopts")


def only_of(known: Mapping[str, Mapping[str, Any]], names: Set[str]) -> dict[str, dict[str, Any]]:
    """Return what is known of these tests and of the units that they are in, without what others took."""
    units, gone = {unit_of(name) for name in names}, Counter[str]()
    for name in known["tests"].keys() - names:
        gone[unit_of(name)] += sum(known["tests"][name].values())
    files = {unit: seconds for unit, seconds in known["files"].items() if unit in units}
    return {
        "files": _longest_first({unit: max(0, round(took - gone[unit], 1)) for unit, took in files.items()}),
        "tests": {name: parts for name, parts in known["tests"].items() if name in names},
    }


def read(path: Path = FILE) -> dict[str, dict[str, Any]]:
    """Return what was measured last."""
    empty: dict[str, dict[str, Any]] = {"files": {}, "tests": {}}
    return json.loads(path.read_text()) if path.exists() else empty


def merged(
    known: Mapping[str, Mapping[str, Any]], seconds: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, Any]]:
    """Return both together; files that were measured now replace what was known of them."""
    files: Counter[str] = Counter()
    for name, parts in seconds.items():
        files[unit_of(name)] += sum(parts.values())
    tests = {name: found for name, parts in seconds.items() if (found := long_parts(parts))}
    tests |= {name: parts for name, parts in known["tests"].items() if unit_of(name) not in files}
    sums = {name: round(total, 1) for name, total in files.items()}
    return {
        "files": _longest_first({**known["files"], **sums}),
        "tests": dict(sorted(tests.items(), key=lambda row: (-sum(row[1].values()), row[0]))),
    }


def long_parts(parts: Mapping[str, float]) -> dict[str, float]:
    """Return those of setup, call and teardown that are worth a line, rounded."""
    return {when: round(took, 1) for when, took in parts.items() if took >= LONG_S}


def unit_of(nodeid: str) -> str:
    """Return what one worker does at a time: a file, or all that shares a server.

    These are the tests of some folders, and all that is repeated on PostgreSQL or on Kafka 3.9.
    """
    file, _, test = nodeid.partition("::")
    if "kafka_39" in test:
        return "kafka_39"
    if "[postgresql" in test:
        return "postgresql"
    return next((folder for folder in _SHARING if file.startswith(f"{folder}/")), file)


def _longest_first(files: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(files.items(), key=lambda row: (-row[1], row[0])))
