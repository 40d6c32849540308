"""Proves that a management command in a user's own shell finds the stack that `make up` started."""

import json
from pathlib import Path

from dashboard.runtime.environment import sandbox_environment


def test_a_running_stack_is_found(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "secret_key").write_text("s3cret\n")
    (tmp_path / "fenceline.toml").write_text("")
    (tmp_path / "stack.json").write_text(json.dumps({"redis": "redis://r", "database": "sqlite:///d"}))
    assert sandbox_environment(tmp_path, {}) == {
        "SECRET_KEY": "s3cret",
        "FENCELINE_CONFIG": str(tmp_path / "fenceline.toml"),
        "REDIS_URL": "redis://r",
        "DATABASE_URL": "sqlite:///d",
    }


def test_the_environment_takes_precedence(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text(json.dumps({"redis": "redis://r", "database": "sqlite:///d"}))
    found = sandbox_environment(tmp_path, {"REDIS_URL": "redis://mine", "DATABASE_URL": ""})
    assert found == {"REDIS_URL": "redis://mine", "DATABASE_URL": "sqlite:///d"}


def test_an_empty_or_unreadable_folder_gives_no_variables(tmp_path: Path) -> None:
    assert sandbox_environment(tmp_path / "nowhere", {}) == {}
    (tmp_path / "stack.json").write_text("{")
    assert sandbox_environment(tmp_path, {}) == {}
