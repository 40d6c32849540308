"""Proves the history job's manifest: what is written is read back, and everything else is refused."""

import json

import pytest

from fenceline.decode.typed import NewerFile, TornFile
from fenceline.facts import TransitionKind
from fenceline.history.reports import (
    FORMAT,
    Manifest,
    ReportFigures,
    ReportPart,
    manifest_name,
    manifest_number,
    read_manifest,
    sum_figures,
    write_manifest,
)

MANIFEST = Manifest(
    "prod", "__transaction_state", "b9f0", 7, 1_795_000_000_000, {0: 5, 49: 2**40}, {49: 12}, 99,
    {"value_version": 2}, {"value_version": (49, 17, "value version 99")},
    (ReportPart("000000000007-1f3a", 0, "2026-11-21", "2026-11-22"),), ("000000000007-1f3a",),
    ("000000000003-00aa",),
)  # fmt: skip


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert read_manifest(write_manifest(MANIFEST)) == MANIFEST


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '"x"',
        "{}",
        '{"format": "1"}',
        '{"format": 1}',
        '{"format": 1, "cluster": "x", "no": 1}',
    ],
)
def test_anything_else_is_no_manifest(text: str) -> None:
    with pytest.raises(TornFile, match="torn or no manifest"):
        read_manifest(text)


def test_each_cut_of_a_manifest_is_no_manifest() -> None:
    text = write_manifest(MANIFEST)
    for end in range(0, len(text), 7):
        with pytest.raises(TornFile):
            read_manifest(text[:end])


def test_a_newer_layout_is_refused_as_newer() -> None:
    with pytest.raises(NewerFile, match=f"format is {FORMAT + 1}"):
        read_manifest(json.dumps({"format": FORMAT + 1}))


def test_names_of_manifests_sort_as_their_batches_and_other_files_are_none() -> None:
    batches = [0, 9, 10, 99_999, 10**12, 10**13]
    names = [manifest_name(batch) for batch in batches]
    assert names[2] == "000000000010.json"
    assert [manifest_number(name) for name in names] == batches
    assert names[:4] == sorted(names[:4])
    for other in "_SUCCESS", ".000000000001.json.crc", "000000000001.json.tmp", "1.json", "notes.txt":
        assert manifest_number(other) is None


def test_figures_add_up_and_take_back() -> None:
    first = ReportFigures({TransitionKind.COMMIT: 3, TransitionKind.ABORT: 1}, 4, {7: 3}, {1: 2})
    revised = ReportFigures({TransitionKind.ABORT: -1, TransitionKind.TIMEOUT: 1}, 0, {}, {1: 1})
    sums = sum_figures([first, revised])
    assert sums == ReportFigures({TransitionKind.COMMIT: 3, TransitionKind.TIMEOUT: 1}, 4, {7: 3}, {1: 3})
    assert (sums.commits, sums.aborts) == (3, 1)
    assert sum_figures([]) == ReportFigures()
