"""Proves that the code follows its architecture, and that each check fails on a violation."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

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
