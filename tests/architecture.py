"""What the code base holds to that no linter checks: each check takes a checkout's root, returns what breaks
it."""

import ast
import functools
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGES = (
    "fenceline", "fenceline_client", "transaction_admin", "collectors", "dashboard", "sandbox",
    "spark_listener", "spark_pipeline",
)  # fmt: skip
#: What Django writes rows with.
WRITES = frozenset({
    "save", "create", "update", "delete", "get_or_create", "update_or_create", "bulk_create", "bulk_update",
})  # fmt: skip
#: Where the standard library reads a clock, or reaches outside of the process.
CLOCKS = frozenset({"now", "utcnow", "today", "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"})
OUTSIDE = frozenset({
    "asyncio", "http", "io", "logging", "os", "pathlib", "random", "secrets", "shutil", "socket", "sqlite3",
    "subprocess", "sys", "tempfile", "threading", "time",
})  # fmt: skip
#: It asks which Python runs it.
COMPAT = ("fenceline/compat/__init__.py", "sys")
#: What template tags import: the standard library aside, these packages, and of the dashboard these modules.
TAGS_IMPORT = frozenset({*sys.stdlib_module_names, "django", "fenceline"})
OF_THE_DASHBOARD = (
    "dashboard.labels",
    "dashboard.web.addresses",
    "dashboard.web.per_request",
    "dashboard.web.server.bundles",
    "dashboard.web.templatetags",
)
MOST_LINES, MOST_MODULES, MOST_COLUMNS = 400, 20, 120


def parsed(root: Path, *packages: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of packages by its path below the root; migrations are Django's."""
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            if "migrations" not in path.parts:
                yield str(path.relative_to(root)), _parse(path.read_text())


@functools.cache
def _parse(text: str) -> ast.Module:
    """Parse a module once, however many checks and copies ask for it."""
    return ast.parse(text)


def classes_of_one_name(root: Path) -> list[str]:
    """Public classes that share a name: neither a search nor a stack trace tells them apart."""
    places = defaultdict(list)
    for name, tree in parsed(root, *PACKAGES):
        if "/management/" in name:
            continue  # Django wants each command's class to be called Command.
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{name}:{node.lineno}")
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def clocks_and_io(root: Path) -> list[str]:
    """Where `fenceline` reads a clock or imports what reaches outside: `now` is an argument there."""
    found = []
    for name, tree in parsed(root, "fenceline"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else _names(node)
                outside = (each for each in modules if _root(each) in OUTSIDE and (name, each) != COMPAT)
                found += [f"{name}:{node.lineno}: {each}" for each in outside]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_clock(node.func):
                found.append(f"{name}:{node.lineno}: {ast.unparse(node.func)}")
    return found


def writes_in_pages(root: Path) -> list[str]:
    """Where a page or the API writes rows by itself, in place of a store."""
    return [
        f"{name}:{node.lineno}: {ast.unparse(node.func)}"
        for name, tree in parsed(root, "dashboard/web", "dashboard/api")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES
        if _is_row(node.func, _modules(tree))
    ]


def imports_in_tags(root: Path) -> list[str]:
    """What a template tag imports of the dashboard besides words, addresses of pages and of bundles, and
    what is derived once per request: a tag renders what the page gives it, and so needs no query, model or
    access rule, nor a function that uses one."""
    return [
        f"{name}:{node.lineno}: {module}"
        for name, tree in parsed(root, "dashboard/web/templatetags")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in _modules_of(node)
        if _root(module) not in TAGS_IMPORT and not _is_in(module, OF_THE_DASHBOARD)
    ]


def large_parts(root: Path) -> list[str]:
    """Modules of too many lines, and folders of too many modules."""
    found = []
    folders: dict[str, int] = defaultdict(int)
    for name, _ in parsed(root, *PACKAGES):
        lines = len((root / name).read_text().splitlines())
        found += [f"{name}: {lines} lines"] if lines > MOST_LINES else []
        folders[name.rpartition("/")[0]] += not name.endswith("__init__.py")
    return found + [f"{name}: {count} modules" for name, count in folders.items() if count > MOST_MODULES]


def long_template_lines(root: Path) -> list[str]:
    """Lines of templates that are too long to read: a sentence of many conditions belongs into Python."""
    return [
        f"{path.relative_to(root)}:{number}: {len(line)} columns"
        for path in sorted((root / "templates").rglob("*.html"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MOST_COLUMNS
    ]


def _names(node: ast.Import) -> list[str]:
    return [each.name for each in node.names]


def _modules_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that an import names: `from package import name` may name one, too."""
    if isinstance(node, ast.Import):
        return _names(node)
    return [f"{node.module}.{each.name}" for each in node.names]


def _is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{each}.") for each in packages)


def _root(module: str) -> str:
    return module.partition(".")[0]


def _is_clock(call: ast.Attribute) -> bool:
    return call.attr in CLOCKS and ast.unparse(call.value).rpartition(".")[2] in ("datetime", "date", "time")


def _modules(tree: ast.Module) -> set[str]:
    """Return the names of what a module imports: functions of stores are called through them."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {each.asname or each.name for node in imports for each in node.names if each.name.islower()}


def _is_row(method: ast.Attribute, modules: set[str]) -> bool:
    """Whether it may write rows: no function of an imported module, no route, no part of a figure."""
    receiver = method.value
    if isinstance(receiver, ast.Name):
        return receiver.id not in modules and receiver.id.rpartition("_")[2] != "router"
    is_result = isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Name)
    return not (is_result and method.attr == "update")
