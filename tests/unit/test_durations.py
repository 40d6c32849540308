"""Proves what recorded durations hold after a run: what ran is replaced, and what the gate no longer has is
removed; and which tests `make test-fast` leaves out by them."""

from tests.durations import long_tests, merged, only_of

KNOWN = {
    "files": {"tests/unit/test_a.py": 7.0, "tests/unit/test_gone.py": 5.0, "postgresql": 3.0},
    "tests": {
        "tests/unit/test_a.py::test_one": {"call": 6.0},
        "tests/unit/test_a.py::test_soak": {"call": 1.0},
        "tests/unit/test_gone.py::test_two": {"call": 5.0},
        "tests/db/test_b.py::test_three[postgresql]": {"call": 3.0},
    },
}


def test_what_the_gate_no_longer_has_is_removed() -> None:
    gate = {"tests/unit/test_a.py::test_one", "tests/db/test_b.py::test_three[postgresql]"}
    assert only_of(KNOWN, gate) == {
        "files": {"tests/unit/test_a.py": 6.0, "postgresql": 3.0},
        "tests": {name: KNOWN["tests"][name] for name in sorted(gate, reverse=True)},
    }


def test_a_file_that_ran_replaces_what_was_known_of_it() -> None:
    ran = {"tests/unit/test_a.py::test_one": {"setup": 0.06, "call": 0.84}}
    found = merged(KNOWN, ran)
    assert found["files"]["tests/unit/test_a.py"] == 0.9
    assert found["tests"]["tests/unit/test_a.py::test_one"] == {"call": 0.8}
    assert "tests/unit/test_a.py::test_soak" not in found["tests"]
    assert found["tests"]["tests/unit/test_gone.py::test_two"] == {"call": 5.0}


def test_long_tests_are_left_out_but_for_the_checks_of_the_code() -> None:
    known = {
        "tests/web/test_a.py::test_long": {"call": 2.0},
        "tests/web/test_a.py::test_first": {"setup": 3.0, "call": 0.05},
        "tests/unit/test_doc_names.py::test_names": {"call": 5.0},
        "tests/unit/test_architecture.py::test_code[class names]": {"call": 5.0},
    }
    assert long_tests({"files": {}, "tests": known}) == {"tests/web/test_a.py::test_long"}
