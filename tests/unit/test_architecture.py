"""Proves that the code follows its architecture, and that each check fails on a violation.

What runs in users' Spark is Python 3.9: by vermin, of every module that the listener and the jobs import.
`make test-matrix` runs them on real ones.
"""

import ast
import builtins
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grimp
import pytest

from sandbox.options import ROOT
from tests import architecture

Check = Callable[[Path], list[str]]
CHECKS: dict[str, Check] = {
    "class names": architecture.classes_of_one_name,
    "clocks": architecture.clocks_and_io,
    "writes": architecture.writes_in_pages,
    "imports of tags": architecture.imports_in_tags,
    "sizes": architecture.large_parts,
    "columns of templates": architecture.long_template_lines,
}
#: A check, a file and a line that breaks it.
PLANTED = (
    ("class names", "dashboard/groups/queries.py", "class TransactionState: ..."),
    ("class names", "spark_listener/spool.py", "class TransactionState: ..."),
    ("clocks", "fenceline/facts.py", "import time"),
    ("clocks", "fenceline/rules/rule.py", "from os import environ"),
    ("clocks", "fenceline/limits.py", "STARTED = __import__('datetime').datetime.now()"),
    ("writes", "dashboard/web/pages/actions.py", "def view(request): Action.objects.all().delete()"),
    ("writes", "dashboard/web/pages/groups.py", "def view(request, row): row.save()"),
    ("writes", "dashboard/api/routers/actions.py", "def view(request): Action.objects.update(state='done')"),
    ("imports of tags", "dashboard/web/templatetags/status_labels.py", "from dashboard.models import Action"),
    (
        "imports of tags",
        "dashboard/web/templatetags/status_labels.py",
        "from dashboard.groups import queries",
    ),
    ("imports of tags", "dashboard/web/templatetags/components.py", "import dashboard.system.access"),
    ("imports of tags", "dashboard/web/templatetags/fenceline.py", "from dashboard.web import page_context"),
    ("sizes", "fenceline/limits.py", "#\n" * 400),
    ("columns of templates", "templates/groups/list.html", f"<p>{'x' * 120}</p>"),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of every package and of the templates, in which tests plant violations."""
    folder = tmp_path_factory.mktemp("copy")
    for package in (*architecture.PACKAGES, "templates"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("static", "*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@contextmanager
def planted(copy: Path, path: str, line: str) -> Iterator[None]:
    """Append a line to a file of the copy; without it again when left."""
    whole = (copy / path).read_text()
    (copy / path).write_text(f"{whole}\n{line}\n")
    try:
        yield
    finally:
        (copy / path).write_text(whole)


@pytest.mark.parametrize("name", CHECKS)
def test_the_code_follows_each_check(name: str) -> None:
    assert CHECKS[name](ROOT) == []


@pytest.mark.parametrize(("name", "path", "line"), PLANTED)
def test_a_planted_violation_is_found(copy: Path, name: str, path: str, line: str) -> None:
    with planted(copy, path, line):
        (found,) = CHECKS[name](copy)
    assert path in found


#: A file and a line that breaks a contract, and what that line imports.
UPWARD = (
    ("collectors/kafka/groups.py", "import django", "django"),
    ("collectors/polling.py", "from dashboard.models import Cluster", "dashboard.models"),
    ("fenceline/facts.py", "import confluent_kafka", "confluent_kafka"),
    ("fenceline/kafka/groups.py", "from fenceline.spark import records", "fenceline.spark.records"),
    ("dashboard/runtime/leases.py", "from dashboard.web import rendering", "dashboard.web.rendering"),
    (
        "dashboard/groups/queries.py",
        "from dashboard.partitions import queries",
        "dashboard.partitions.queries",
    ),
    ("dashboard/web/pages/groups.py", "from transaction_admin import api", "transaction_admin.api"),
    (
        "dashboard/web/templatetags/status_labels.py",
        "from dashboard.system import access",
        "dashboard.system.access",
    ),
    ("sandbox/ports.py", "import django", "django"),
)


def test_imports_that_run_upward_and_a_package_that_no_layer_names_are_found(copy: Path) -> None:
    annex = copy / "dashboard" / "annex"
    annex.mkdir()
    (annex / "__init__.py").touch()
    with ExitStack() as plants:
        for path, line, _ in UPWARD:
            plants.enter_context(planted(copy, path, line))
        done = lint(copy)
    shutil.rmtree(annex)
    assert done.returncode == 1, done.stdout
    found = " ".join(done.stdout.split())
    for path, _, imported in UPWARD:
        module = path.removesuffix(".py").replace("/", ".")
        assert f"{module} -> {imported} (l." in found, found
    assert "annex" in found


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the import contracts on a copy."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


#: It asks which Python runs it, and has both ways.
COMPAT = ROOT / "fenceline" / "compat" / "__init__.py"
#: What users' Spark gets as a whole; of `fenceline` it runs what these import.
PACKAGES = ("spark_listener", "spark_pipeline", "transaction_admin")


def modules_of_users() -> list[Path]:
    """Return the files of the packages, and of all that they import of ours."""
    graph = grimp.build_graph(*PACKAGES, "fenceline", cache_dir=None)
    own = {name for name in graph.modules if name.partition(".")[0] in PACKAGES}
    names = own.union(*(graph.find_upstream_modules(name, as_package=False) for name in own))
    files = (ROOT.joinpath(*name.split(".")) for name in names)
    return sorted(file / "__init__.py" if file.is_dir() else file.with_suffix(".py") for file in files)


def unions_at_run_time(file: Path) -> list[str]:
    """Return the calls and names that are given `int | str`, which vermin takes for numbers."""
    tree = ast.parse(file.read_text())
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    asking = (node for node in calls if getattr(node.func, "id", "") in ("isinstance", "issubclass"))
    given = [(node, node.args[1]) for node in asking]
    given += [
        (node, node.value)
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value
    ]
    return [
        f"{file}:{node.lineno}: {ast.unparse(node)}"
        for node, value in given
        if any(map(_is_union, ast.walk(value)))
    ]


def _is_union(node: ast.AST) -> bool:
    """Whether it is a union of types, and not of flags of a name."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
        return False
    return any(
        isinstance(side, ast.Subscript)
        or (isinstance(side, ast.Constant) and side.value is None)
        or (isinstance(side, ast.Name) and side.id in dir(builtins))
        for side in (node.left, node.right)
    )


def _evaluates_annotations(file: Path) -> bool:
    """Whether a module with any definition evaluates annotations, which are of newer Pythons."""
    tree = ast.parse(file.read_text())
    names = [node.names[0].name for node in tree.body if isinstance(node, ast.ImportFrom)]
    return "annotations" not in names and any(
        isinstance(node, ast.ClassDef | ast.FunctionDef) for node in tree.body
    )


def newer_than_39(files: list[Path]) -> str:
    """Return what needs a newer Python, "" for nothing."""
    vermin = str(Path(sys.executable).with_name("vermin"))
    command = [vermin, "-t=3.9-", "--violations", "--no-tips", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"


def test_what_runs_in_users_spark_is_python_39() -> None:
    files = modules_of_users()
    files.remove(COMPAT)
    assert newer_than_39(files) == ""
    assert [file for file in files if _evaluates_annotations(file)] == []
    assert [union for file in files for union in unions_at_run_time(file)] == []


def test_what_is_newer_is_found(tmp_path: Path) -> None:
    newer = {
        "enum.py": "from enum import StrEnum",
        "zone.py": "from datetime import UTC",
        "pairs.py": "pairs = zip((), (), strict=True)",
        "slots.py": "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass A: ...",
        "match.py": "match 1:\n    case _: pass",
    }
    files = [tmp_path / name for name in newer]
    for file in files:
        file.write_text(f"{newer[file.name]}\n")
    found = newer_than_39(files)
    assert [file for file in files if str(file) not in found] == []


def test_a_union_that_is_asked_for_is_found(tmp_path: Path) -> None:
    file = tmp_path / "newer.py"
    file.write_text("isinstance(1, int | str)\nisinstance(1, (int, str))\nA = list[int] | None\nB = 1 | 2\n")
    found = [f"{file}:1: isinstance(1, int | str)", f"{file}:3: A = list[int] | None"]
    assert unions_at_run_time(file) == found
