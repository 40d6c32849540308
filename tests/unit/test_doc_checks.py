"""Proves that documents are true of the code: what they name or cite exists, lists of documents, rooms, tasks
and layers are complete, pictures show today's pages, and texts ask for a copy before a removal."""

import ast
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sandbox.scenes.catalogue import SCENES
from tests.browser.screenshots import FOLDER, PICTURES, TAKEN, Picture, release
from tests.cases import cases
from tests.copy_advice import assert_advises_a_copy_first

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


@cases(
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


#: A path to a Markdown file, and the sections named behind it: `docs/design/kafka.md §0, §1.1`.
CITATION = re.compile(r"(?<![\w/{}<>*-])((?:\.{1,2}/)*[\w-][\w./-]*\.md)\b((?:,? §[\d.]*\d)*)")
SUFFIXES = {".py", ".md", ".html", ".toml", ".yml", ".sh", ".json", ".css", ".js"}


def citations(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each Markdown file that a file names, with the numbers of the sections it names of it."""
    text = re.sub(r"https?://\S+", "", path.read_text())
    for name, sections in CITATION.findall(text):
        # In tests a bare name is a file that the test makes or opens.
        if sections or name.startswith("docs/") or "tests" not in path.parts:
            yield name, re.findall(r"[\d.]+", sections)


def missing_citations(path: Path, root: Path) -> list[str]:
    """Return the files, by path from root or citing file, and the sections that are cited and not there."""
    found = []
    for name, sections in citations(path):
        cited = next((each for each in (root / name, path.parent / name) if each.is_file()), None)
        if cited is None:
            found.append(name)
            continue
        headings = re.findall(r"^#+ ([\d.]*\d)\.? ", cited.read_text(), re.MULTILINE)
        found += [f"{name} §{section}" for section in sections if section not in headings]
    return found


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / line for line in done.stdout.splitlines()]
    ours = (path for path in paths if "vendor" not in path.parts and path != Path(__file__))
    return [path for path in ours if path.suffix in SUFFIXES and path.is_file()]


def test_every_cited_file_and_section_exists() -> None:
    paths = tracked()
    found = {str(path.relative_to(ROOT)): names for path in paths if (names := missing_citations(path, ROOT))}
    assert len(paths) > 500
    assert found == {}


@cases(
    ("see notes.md", ["notes.md"]),
    ("(here.md §1.2, §3)", ["here.md §3"]),
    ("[there](../here.md#top) and here.md §1", []),
    ("`docs/rules/{name}.md` names no file", []),
)
def test_a_missing_file_or_section_is_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "here.md").write_text("# Here\n## 1. One\n### 1.2 Two\n")
    (tmp_path / "below").mkdir()
    citing = tmp_path / "below" / "code.py"
    citing.write_text(text)
    assert missing_citations(citing, tmp_path) == expected


DOCS = ROOT / "docs"
ARCHITECTURE = (DOCS / "architecture.md").read_text()
TASK = re.compile(r'(?:@shared_task\(name=|\b(?:Polled|Tailed)\(\s*)(?:"([\w.]+)"|execute\.TASK)')


def linked_paths(path: Path) -> set[Path]:
    return {(path.parent / name).resolve() for name in re.findall(r"\]\(([^)#\s]+)", path.read_text())}


def test_each_index_links_every_document_of_its_folder() -> None:
    folders = {DOCS / name / "README.md" for name in ("adr", "guides", "rules")}
    whole = {*DOCS.glob("*.md"), *DOCS.glob("design/*.md"), *folders} - {DOCS / "README.md"}
    assert len(whole) > 25
    assert whole - linked_paths(DOCS / "README.md") == set()
    for index in folders:
        assert {*index.parent.glob("*.md")} - {index} - linked_paths(index) == set()


def test_every_task_and_every_package_of_the_dashboard_has_a_row() -> None:
    modules = (ROOT / "dashboard" / "tasks").glob("*.py")
    tasks = {
        name or "dashboard.execute_action" for path in modules for name in TASK.findall(path.read_text())
    }
    rows = re.findall(r"^\| `(?:collectors|dashboard)\..*$", ARCHITECTURE, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`((?:collectors|dashboard)\.[\w.]+)`", row)}
    assert len(tasks) > 12
    assert named == tasks
    rooms = {path.parent.name for path in (ROOT / "dashboard").glob("*/__init__.py")} - {"migrations"}
    rows = re.findall(r"^\| (`dashboard/\w+/`[^|]*) \|", ARCHITECTURE, re.MULTILINE)
    assert {room for row in rows for room in re.findall(r"`dashboard/(\w+)/`", row)} == rooms


def test_the_picture_has_the_layers_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers"]
    picture = ARCHITECTURE.split("## The rooms of the dashboard")[1].split("flowchart TB")[1].split("```")[0]
    places = {name: picture.index(name) for layer in layers for name in layer.split(" | ")}
    firsts = [min(places[name] for name in layer.split(" | ")) for layer in layers]
    assert firsts == sorted(firsts)


def test_each_seed_has_a_page_and_a_proof_that_exist() -> None:
    rows = re.findall(r"^\| (\d+) \| .+? \| ([\w-]+) \| ([\w/-]+) \|$", (DOCS / "seeds.md").read_text(), re.M)
    assert [int(number) for number, _, _ in rows] == list(range(1, 52))
    pages = {path.stem.replace("_", "-") for path in (ROOT / "dashboard" / "web" / "pages").rglob("*.py")}
    for number, page, proof in rows:
        assert page in {*pages, "flink-jobs"}, number
        folder, _, name = proof.rpartition("/")
        assert proof in SCENES or (ROOT / "tests" / folder / f"test_{name}.py").is_file(), number


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_of_this_release_or_its_page_is_the_same(picture: Picture) -> None:
    taken = json.loads(TAKEN.read_text())[picture.name]
    assert release() == taken["release"] or picture.digest() == taken["templates"], "run make screenshots"


def test_each_picture_is_one_that_is_taken() -> None:
    assert {file.stem for file in FOLDER.glob("*.png")} == {picture.name for picture in PICTURES}


#: What speaks of checkpoints and ledgers; the rest removes channels, silences and options.
ABOUT_REMOVALS = [
    *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "alerts.md"),
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


def test_no_message_removes_files_without_a_copy() -> None:
    for text in (text for path in CODE for text in texts(path)):
        is_sentence = " " in text.strip() and not text.lstrip().upper().startswith("DELETE FROM")
        if is_sentence and ABOUT_FILES.search(text) and not any(each in text for each in OTHER_THINGS):
            assert_advises_a_copy_first(text)


def test_no_page_removes_files_without_a_copy() -> None:
    for path in ABOUT_REMOVALS:
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
