"""What runs in users' Spark is Python 3.9: by vermin, of every module that the listener and the jobs import.

`make test-matrix` runs them on real ones.
"""

import ast
import builtins
import subprocess
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
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
