"""Proves that each secret may come from a file, and that every mistake with one is one clear line."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from dashboard.runtime.environment import SECRETS, SecretError, read_secret, with_secrets
from sandbox.options import ROOT
from tests.db.processes import run_python


def test_a_file_is_the_value(tmp_path: Path) -> None:
    for name in SECRETS:
        (tmp_path / name).write_text(f" {name} value\r\n")
    given = {f"{name}_FILE": str(tmp_path / name) for name in SECRETS}
    found = with_secrets(given)
    assert {name: found[name] for name in SECRETS} == {name: f" {name} value" for name in SECRETS}


def test_without_a_file_the_variable_is() -> None:
    assert read_secret({"SECRET_KEY": "a", "SECRET_KEY_FILE": ""}, "SECRET_KEY") == "a"
    assert read_secret({}, "SECRET_KEY") == ""


@pytest.mark.parametrize(
    ("text", "value", "message"),
    [
        (b"a", "b", r"SECRET_KEY and SECRET_KEY_FILE are both set: keep one of them\."),
        (
            None,
            "",
            r"SECRET_KEY_FILE=\S+: No such file or directory\. Name a file that this process, user \d+",
        ),
        (b"\n", "", r"SECRET_KEY_FILE=\S+: the file is empty\. Write the secret into it\."),
        (b"\xff\xfe", "", r"SECRET_KEY_FILE=\S+: is not text in UTF-8\."),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: bytes | None, value: str, message: str) -> None:
    path = tmp_path / "secret"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(SecretError, match=message):
        read_secret({"SECRET_KEY": value, "SECRET_KEY_FILE": str(path)}, "SECRET_KEY")


def settings(expression: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Evaluate an expression over the settings in a process with these variables."""
    program = f"import json; from dashboard import settings as s; print(json.dumps({expression}))"
    return run_python(program, without=SECRETS, **variables)


def test_the_database_password_may_come_from_a_file_instead_of_its_url(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p@ss/word:?\n")
    variables = {
        "SECRET_KEY": "a",
        "POSTGRES_PASSWORD_FILE": str(tmp_path / "password"),
        "DATABASE_URL": "postgres://fenceline@postgres:5432/fenceline",
    }
    expression = "s.DATABASES['default']['PASSWORD']"
    assert json.loads(settings(expression, **variables).stdout) == "p@ss/word:?"
    in_url = variables | {"DATABASE_URL": "postgres://fenceline:other@postgres:5432/fenceline"}
    assert json.loads(settings(expression, **in_url).stdout) == "other"


def test_a_mistake_ends_the_start_in_one_line() -> None:
    refused = settings("1", SECRET_KEY="a", SECRET_KEY_FILE="/nonexistent")
    assert refused.stderr == "fenceline: SECRET_KEY and SECRET_KEY_FILE are both set: keep one of them.\n"


def test_the_docs_name_every_secret() -> None:
    text = (ROOT / "docs" / "deploying.md").read_text()
    assert set(re.findall(r"`(\w+)_FILE`", text)) - {"CA"} == set(SECRETS)
