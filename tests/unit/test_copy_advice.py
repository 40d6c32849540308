"""Proves that texts ask for a copy before a removal: remedies, the sink's errors, the docs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.copy_advice import assert_advises_a_copy_first

ROOT = Path(__file__).parents[2]
#: What speaks of checkpoints and ledgers; the rest removes channels, silences and options.
DOCS = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/rules").glob("*.md")),
    ROOT / "README.md",
]
CODE = [
    *sorted((ROOT / "fenceline").rglob("*.py")),
    *sorted((ROOT / "collectors").rglob("*.py")),
    *sorted((ROOT / "spark_pipeline").rglob("*.py")),
    *sorted((ROOT / "dashboard" / "actions").rglob("*.py")),
    *sorted((ROOT / "dashboard").glob("*.py")),
]
ABOUT_FILES = re.compile(
    r"checkpoint|offset|commits?/|ledger|file|folder|metadata|kafka_exactly_once|\bit\b|both"
)
#: Of options of librdkafka, of secrets, of rows: nothing that a copy would bring back.
OTHER_THINGS = ("librdkafka",)


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a module that users may read, docstrings left out; {} where a value goes."""
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in docs:
            yield "".join(_part(part) for part in node.values)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and not {id(node)} & (docs | inside)
        ):
            yield node.value


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    is_copy = isinstance(part, ast.FormattedValue) and ast.unparse(part.value) == "COPY_FIRST"
    return "copy the checkpoint folder to another place, then" if is_copy else "{}"


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_message_removes_files_without_a_copy(path: Path) -> None:
    for text in texts(path):
        is_sentence = " " in text.strip() and not text.lstrip().upper().startswith("DELETE FROM")
        if is_sentence and ABOUT_FILES.search(text) and not any(each in text for each in OTHER_THINGS):
            assert_advises_a_copy_first(text)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_removes_files_without_a_copy(path: Path) -> None:
    if path.name in ("alerts.md", "openapi.json"):
        return
    for paragraph in re.split(r"\n\s*\n|\n(?=[-|\d])", path.read_text()):
        assert_advises_a_copy_first(paragraph)


def test_the_check_distinguishes_an_instruction_from_a_report() -> None:
    assert_advises_a_copy_first(
        "files that were removed; do not remove the ledger; it is about to remove nothing"
    )
    assert_advises_a_copy_first("copy the checkpoint folder to another place, then remove offsets/3")
    for text in (
        "remove offsets/3",
        "remove offsets/3, then copy the folder first",
        "restore it, or delete it",
    ):
        with pytest.raises(AssertionError):
            assert_advises_a_copy_first(text)
