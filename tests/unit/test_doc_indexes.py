"""Proves that documents are complete where they list: every document, every room, every task, every layer."""

import re
import tomllib
from pathlib import Path

from sandbox.scenes.catalogue import SCENES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ARCHITECTURE = (DOCS / "architecture.md").read_text()
TASK = re.compile(r'(?:@shared_task\(name=|\b(?:Polled|Tailed)\(\s*)(?:"([\w.]+)"|execute\.TASK)')


def linked_paths(path: Path) -> set[Path]:
    return {(path.parent / name).resolve() for name in re.findall(r"\]\(([^)#\s]+)", path.read_text())}


def test_the_index_links_every_document() -> None:
    folders = {DOCS / name / "README.md" for name in ("adr", "guides", "rules")}
    documents = {*DOCS.glob("*.md"), *DOCS.glob("design/*.md"), *folders} - {DOCS / "README.md"}
    assert len(documents) > 25
    assert documents - linked_paths(DOCS / "README.md") == set()


def test_each_folder_s_index_links_all_that_is_in_it() -> None:
    for folder in ("adr", "guides", "rules"):
        index = DOCS / folder / "README.md"
        assert {*index.parent.glob("*.md")} - {index} - linked_paths(index) == set()


def test_every_task_has_a_row() -> None:
    modules = (ROOT / "dashboard" / "tasks").glob("*.py")
    tasks = {
        name or "dashboard.execute_action" for path in modules for name in TASK.findall(path.read_text())
    }
    rows = re.findall(r"^\| `(?:collectors|dashboard)\..*$", ARCHITECTURE, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`((?:collectors|dashboard)\.[\w.]+)`", row)}
    assert len(tasks) > 12
    assert named == tasks


def test_every_package_of_the_dashboard_has_a_row() -> None:
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
