"""Proves from the source code that every writer uses `dashboard.runtime.write_transactions`, and is repeated.

No other module opens a transaction around rows of a cluster, takes a revision, locks rows or notifies from a
commit hook; each function that writes through the helper can be run again.
"""

import ast
from collections.abc import Sequence, Set
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HELPER = "dashboard/runtime/write_transactions.py"
Place = tuple[str, str]
#: Functions that may open a transaction of their own, and why that cannot deadlock.
ATOMIC = {
    ("dashboard/runtime/leases.py", "acquire"): "it locks one collector's row alone",
    (
        "dashboard/runtime/leases.py",
        "renew_waiting",
    ): "it locks collectors' rows that nobody has locked, and waits for none",
    (
        "dashboard/runtime/collector_store.py",
        "_remove_collector",
    ): "it locks a collector's row, then the gaps that it guards",
    ("dashboard/alerts/deliver.py", "claim"): "it locks one delivery's row alone",
    (
        "dashboard/alerts/deliver.py",
        "finish_delivery",
    ): "it locks one delivery's row, then its channel's",
    **{
        ("dashboard/alerts/channels.py", name): "it locks one channel's row alone"
        for name in ("_save", "_update", "enable")
    },
    ("dashboard/alerts/silences.py", "create_silence"): "it inserts rows that refer to no other",
    ("dashboard/alerts/silences.py", "end_silence"): "it locks one silence's row alone",
    ("dashboard/system/tokens.py", "create_token"): "it inserts one token's row",
    ("dashboard/system/tokens.py", "revoke_token"): "it locks one token's row alone",
    ("dashboard/system/users.py", "invite_user"): "it inserts one user's row",
    ("dashboard/system/users.py", "set_password"): "it locks one user's row alone",
    ("dashboard/management/commands/unlock_sign_in.py", "_unlock"): "others lock one such row alone",
    ("dashboard/system/scenes.py", "request_scene"): "it inserts one audit row alone",
    ("dashboard/system/sign_in/limits.py", "_record"): "it locks one audit row alone",
}
#: Functions that write through the helper and are repeated by their caller.
REPEATED_BY_CALLER = {
    ("dashboard/recoveries/store.py", "_open"): "update_recoveries begins at the same place again",
    ("dashboard/streaming/progress_store.py", "save_part"): "_save_part makes a new part for each run",
}
OPENS = {"write_transaction", "cluster_transaction", "guarded_transaction"}
#: What only the helper does, and who else may.
OURS: dict[str, set[Place]] = {
    "select_for_update": {
        ("dashboard/runtime/retention.py", "prune"),
        # With SKIP LOCKED: it waits for no writer.
        ("dashboard/runtime/leases.py", "_lock_held"),
        # It locks a user together with all admins, so that two cannot take each other's role at once.
        ("dashboard/system/users.py", "_locked_user"),
    },
    # They notify sockets of what was changed by Django's own views, and write nothing.
    "on_commit": {
        ("dashboard/system/live_sessions.py", "_session_ended"),
        ("dashboard/system/live_sessions.py", "_check"),
        # It forgets on an instance which audit row its transaction goes on with.
        ("dashboard/system/audit.py", "_note"),
    },
    "set_rollback": set(),
    "savepoint": set(),
}


@cache
def functions() -> Sequence[tuple[str, ast.FunctionDef]]:
    """Return every function of the dashboard, with its file."""
    found = []
    for path in (ROOT / "dashboard").rglob("*.py"):
        name = str(path.relative_to(ROOT))
        if "/migrations/" in name or name == HELPER:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                found.append((name, node))
    return found


@cache
def called(function: ast.FunctionDef) -> Set[str]:
    """Return the names of what a function calls, `atomic` for `transaction.atomic()`."""
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    methods = {each.attr for each in calls if isinstance(each, ast.Attribute)}
    return methods | {each.id for each in calls if isinstance(each, ast.Name)}


def test_no_writer_opens_a_transaction_of_its_own() -> None:
    found = {(file, each.name) for file, each in functions() if "atomic" in called(each)}
    assert found == ATOMIC.keys(), "write through dashboard.runtime.write_transactions, or say why not"


def test_every_writer_through_the_helper_is_repeated() -> None:
    once: set[Place] = set()
    for file, each in functions():
        decorators = {node.id for node in each.decorator_list if isinstance(node, ast.Name)}
        if OPENS & called(each) and "retry_write" not in decorators:
            once.add((file, each.name))
    assert once == REPEATED_BY_CALLER.keys()


@pytest.mark.parametrize("word", sorted(OURS))
def test_locks_and_commit_hooks_are_only_in_the_helper(word: str) -> None:
    assert {(file, each.name) for file, each in functions() if word in called(each)} == OURS[word]


def test_revisions_are_taken_only_from_the_helper() -> None:
    for path in [*(ROOT / "dashboard").rglob("*.py"), *(ROOT / "collectors").rglob("*.py")]:
        name = str(path.relative_to(ROOT))
        if name == HELPER or "/migrations/" in name:
            continue
        code = path.read_text()
        assert "UPDATE dashboard_cluster" not in code, name
        assert "import next_rev" not in code, name
        assert "store.next_rev" not in code, name
