"""Proves that what documents name exists: paths, modules and what they define, and the targets of links."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "benchmarks", "collectors", "compose", "dashboard", "deploy", "docs", "fenceline", "fenceline_client",
    "sandbox", "spark_listener", "spark_pipeline", "templates", "tests", "transaction_admin",
)  # fmt: skip
#: `dashboard/web/pages/`, `tests/README.md`; a pattern (`docs/adr/*.md`, `{name}.md`) names no file.
PATH = re.compile(rf"(?<![\w/.:-])((?:{'|'.join(FOLDERS)})/[\w./-]*)(?![\w*{{<])")
#: `channels.py`: a module of the folder that the paragraph named last.
MODULE = re.compile(r"(?<![\w/.])(\w+\.py)\b")
DOTTED = re.compile(rf"`((?:{'|'.join(FOLDERS)})(?:\.\w+)+)`")
#: `PartitionVerdict`, or `PartitionVerdict.OPEN`, in the glossary.
CLASS = re.compile(r"`([A-Z][a-z]\w+)(?:\.(\w+))?`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE_SUFFIXES = ("env", "py", "toml")


def documents(root: Path) -> list[Path]:
    return [
        *(root / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md")),
        *sorted((root / "docs").rglob("*.md")),
    ]


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the paragraphs of a document and its pictures; other code blocks are examples for users."""
    text = re.sub(r"^```(?!mermaid).*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from re.split(r"\n\s*\n", text)


def missing(path: Path, root: Path) -> list[str]:
    """Return what a document names that is not there."""
    found = []
    for text in paragraphs(path):
        found += [*_paths(text, root, path.parent), *_dotted(text, root)]
    return found + _links(path)


def _paths(text: str, root: Path, beside: Path) -> Iterator[str]:
    """Yield the paths that are neither below the root nor beside the document."""
    text = LINK.sub("]", text)
    folder = root
    for match in sorted((*PATH.finditer(text), *MODULE.finditer(text)), key=lambda found: found.start()):
        name = match[1].rstrip(".-")
        if "/" in name:
            folder = _folder(root / name)
        if not any((place / name).exists() for place in (root, folder, beside)):
            yield name


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _dotted(text: str, root: Path) -> Iterator[str]:
    for name in DOTTED.findall(text):
        if name.rpartition(".")[2] not in FILE_SUFFIXES and not _is_defined(root, name):
            yield name


def _is_defined(root: Path, name: str) -> bool:
    """Whether a name is a module, is defined in one, or is a string of the code: a task, a permission."""
    module, _, attribute = name.rpartition(".")
    if _module(root, name) is not None or f'"{name}"' in _code(root):
        return True
    parent = _module(root, module)
    return parent is not None and attribute in _defined(parent)


def _module(root: Path, name: str) -> Path | None:
    path = root / name.replace(".", "/")
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


@cache
def _code(root: Path) -> str:
    """Return the text of all modules but tests."""
    paths = (path for folder in FOLDERS if folder != "tests" for path in (root / folder).rglob("*.py"))
    return "\n".join(path.read_text() for path in paths)


def _defined(module: Path) -> set[str]:
    named = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            named.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named |= {each.id for each in targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            named |= {each.asname or each.name for each in node.names}
    return named


def _links(path: Path) -> list[str]:
    targets = [target for text in paragraphs(path) for target in LINK.findall(text)]
    return [
        target for target in targets if not target.startswith(("http", "mailto:")) and _is_dead(path, target)
    ]


def _is_dead(path: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = path.parent / name if name else path
    return not file.exists() or (bool(anchor) and anchor not in _anchors(file))


def _anchors(path: Path) -> set[str]:
    """Return the anchors that code hosts give to headings: lower case, no signs, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_all_that_documents_name_exists() -> None:
    paths = documents(ROOT)
    found = {str(path.relative_to(ROOT)): names for path in paths if (names := missing(path, ROOT))}
    assert len(paths) > 60
    assert found == {}


def test_the_classes_of_the_glossary_exist() -> None:
    rows = re.findall(r"\| ([^|]+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    named = {match for row in rows for match in CLASS.findall(row)}
    code = _code(ROOT)
    classes = set(re.findall(r"^class (\w+)", code, re.MULTILINE))
    members = set(re.findall(r"^    (?:class )?(\w+)", code, re.MULTILINE))
    assert len(named) > 60
    assert [name for name, _ in named if name not in classes] == []
    assert [each for _, each in named if each and each not in members] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see `dashboard/gone.py`", ["dashboard/gone.py"]),
        ("see `docs/gone.toml` and `tests/gone/`", ["docs/gone.toml", "tests/gone/"]),
        ("`dashboard/` has `here.py` and `gone.py`", ["gone.py"]),
        ("`dashboard/here.py`, `dashboard/`, `docs/*.md`, `docs/{name}.md`, `manage.py`", []),
        ("`dashboard.gone` and `dashboard.here.Gone`", ["dashboard.gone", "dashboard.here.Gone"]),
        ("`dashboard.here`, `dashboard.here.Here`, `dashboard.task` and `fenceline.toml`", []),
        ("[a](gone.md), [b](here.md#two-words), [c](here.md#gone), [d](https://example.org/gone)",
         ["gone.md", "here.md#gone"]),
        ("```\ncat dashboard/gone.py\n```", []),
        ("```mermaid\nflowchart\n  a[dashboard/gone.py]\n```", ["dashboard/gone.py"]),
    ],
)  # fmt: skip
def test_what_is_missing_is_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "dashboard").mkdir()
    (tmp_path / "manage.py").touch()
    (tmp_path / "dashboard" / "here.py").write_text('class Here:\n    task = "dashboard.task"\n')
    (tmp_path / "docs" / "here.md").write_text("# Two words\n")
    citing = tmp_path / "docs" / "citing.md"
    citing.write_text(text)
    assert missing(citing, tmp_path) == expected
