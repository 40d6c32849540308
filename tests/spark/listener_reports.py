"""Runs the queries of `listener_driver` and compares them with the dashboard's database."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.options import ROOT
from tests.spark.listener.events import TOKEN
from tests.spark.listener.servers import Dashboard
from tests.waiting import wait_for

DEADLINE_S = 240


def rows(dashboard: Dashboard, sql: str, *values: object) -> list[dict[str, Any]]:
    """Return what the dashboard's database has."""
    with sqlite3.connect(dashboard.database) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql, values)]


def query(dashboard: Dashboard, name: str) -> dict[str, Any]:
    """Return the row of a query, empty while there is none."""
    found = rows(dashboard, "SELECT * FROM dashboard_query WHERE name = ?", name)
    return found[0] if found else {}


def assert_listener_reports(
    dashboard: Dashboard, how: str, folder: Path, python: str, settings: Mapping[str, str],
    environment: Mapping[str, str],
) -> set[str]:  # fmt: skip
    """Prove that everything its queries do is reported; return the reported versions of Spark."""
    arguments = [how, dashboard.url, TOKEN, str(folder), json.dumps(settings)]
    driver = subprocess.Popen(
        [python, "-m", "tests.spark.listener_driver", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _follow(driver, dashboard, how)
    finally:
        driver.kill()
        driver.communicate()
    assert not list((folder / "spool").iterdir()), "all is delivered at the end"
    runs = rows(dashboard, "SELECT * FROM dashboard_run WHERE name LIKE ?", f"%{how}")
    assert {row["dropped"] for row in runs} == {0}
    return {row["spark_version"] for row in runs}


def _follow(driver: subprocess.Popen[str], dashboard: Dashboard, how: str) -> None:
    good, bad = f"good_{how}", f"bad_{how}"
    _read_word(driver, "idle")
    wait_for(lambda: query(dashboard, good).get("state") == "idle", "it is idle", DEADLINE_S)
    running = query(dashboard, good)
    assert (bool(running["started_ms"]), running["exception"]) == (True, "")
    assert running["asynchronous"] == (0 if how == "classic" else None)
    batches = rows(
        dashboard, "SELECT * FROM dashboard_batch WHERE query_id = ? ORDER BY batch_id", running["id"]
    )
    assert [(row["batch_id"], row["input_rows"]) for row in batches] == [(0, 1), (1, 1), (2, 1)]
    assert {row["run_id"] for row in batches} == {running["run_id"]}
    _continue(driver)
    _read_word(driver, "failed")
    wait_for(lambda: query(dashboard, good).get("state") == "stopped", "it is stopped", DEADLINE_S)
    assert query(dashboard, good)["ended_ms"] >= running["started_ms"]
    tracked = f"tracked_{how}"
    wait_for(lambda: query(dashboard, tracked).get("state") == "stopped", "it is stopped", DEADLINE_S)
    assert query(dashboard, tracked)["asynchronous"] == (1 if how == "classic" else None)
    wait_for(lambda: query(dashboard, bad).get("state") == "failed", "it failed", DEADLINE_S)
    assert "it broke on purpose" in query(dashboard, bad)["exception"]
    _continue(driver)
    assert driver.wait(DEADLINE_S) == 0


def _read_word(driver: subprocess.Popen[str], word: str) -> None:
    assert driver.stdout is not None
    assert driver.stdout.readline() == f"{word}\n"


def _continue(driver: subprocess.Popen[str]) -> None:
    assert driver.stdin is not None
    driver.stdin.write("\n")
    driver.stdin.flush()
