"""Proves that docs/deploying.md fits docker-compose.yml: the services, files, profiles and options of each
command, each variable, each override. No engine runs here; tests/stack/postgres/test_upgrade.py goes back."""

import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

from sandbox.options import ROOT
from tests.stack import compose_file

TEXT = (ROOT / "docs" / "deploying.md").read_text()
RAW = "\n".join(
    (ROOT / name).read_text() for name in ("docker-compose.yml", "compose/stores.yml", "compose.scale.yml")
)
#: What a subcommand of `docker compose` may be given here; those that take a value end with "=".
OPTIONS = {
    "up": {"--build", "--no-build", "--detach", "--force-recreate", "--scale="},
    "exec": {"-T"},
    "stop": set(),
    "logs": set(),
}
#: Read by Docker Compose itself, and the name of a whole group of variables.
NOT_OURS = {"COMPOSE_FILE"}


def blocks(kind: str) -> list[str]:
    """Return the fenced blocks of a kind, "" for commands."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == kind]


def compose_commands() -> Iterator[Sequence[str]]:
    """Yield the words behind every `docker compose` in the text, without redirections."""
    lines = [line for block in blocks("") for line in block.splitlines()]
    spans = re.findall(r"`(docker compose [^`]+)`", TEXT)
    for line in (*lines, *spans):
        if line.startswith("docker compose "):
            yield shlex.split(re.sub(r"\s[<>].*", "", line))[2:]


def parsed(words: Sequence[str]) -> tuple[list[str], list[str], str, list[str], list[str]]:
    """Return files, profiles, subcommand, its options and its operands."""
    files, profiles, rest = [], [], list(words)
    while rest[0].startswith("-"):
        option, value = rest.pop(0), rest.pop(0)
        {"-f": files, "--profile": profiles}[option].append(value)
    subcommand = rest.pop(0)
    options = []
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        options.append(option)
        if f"{option}=" in OPTIONS[subcommand]:
            options.append(rest.pop(0))
    return files, profiles, subcommand, options, rest


COMMANDS = sorted({tuple(words) for words in compose_commands()})


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_names_existing_services_and_files(words: Sequence[str]) -> None:
    files, profiles, subcommand, options, operands = parsed(words)
    services = compose_file.load({}, *files)["services"]
    assert set(profiles) <= {each for service in services.values() for each in service.get("profiles", ())}
    for option in options:
        if "=" in option:
            assert option.partition("=")[0] in services
        else:
            assert {option, f"{option}="} & OPTIONS[subcommand], option
    if subcommand == "exec":
        assert operands[0] in services
        _check_program(operands[1:])
    else:
        assert set(operands) <= set(services)


def _check_program(words: Sequence[str]) -> None:
    if words[:2] == ["python", "manage.py"]:
        assert words[2] in get_commands(), words[2]
    else:
        assert words[0] in ("pg_dump", "pg_restore", "dropdb", "createdb")


def test_commands_were_found() -> None:
    assert {parsed(words)[2] for words in COMMANDS} == OPTIONS.keys()


def test_every_variable_is_in_the_file_and_in_the_text() -> None:
    in_files = set(re.findall(r"\$\{(\w+)", RAW))
    assigned = {
        name for block in blocks("") for name in re.findall(r'^(?:echo ")?(\w+)=', block, re.MULTILINE)
    }
    assert assigned - NOT_OURS <= in_files
    for name in in_files:
        assert re.search(rf"\b{name}\b", TEXT), f"{name} is not in docs/deploying.md"


def test_the_table_of_settings_has_the_defaults_of_the_file() -> None:
    rows = dict(re.findall(r"^\| ([A-Z_, ]+) \| (.+) \|$", TEXT, re.MULTILINE))
    names = {name for row in rows for name in row.split(", ")}
    given = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", RAW))
    assert names <= given.keys()
    for name in ("PORT", "SHARDS", "FENCELINE_TOML", "LOG_FORMAT"):
        assert given[name] in rows[name], name


OVERRIDES = [block for block in blocks("yaml") if "services:" in block]


@pytest.mark.parametrize("block", OVERRIDES)
def test_an_override_fits(block: str) -> None:
    """That they are valid, tests/stack/test_compose.py proves."""
    services = compose_file.load({})["services"]
    override: Any = yaml.safe_load(block)
    for name, service in override["services"].items():
        assert name in services or service["extends"]["service"] in services


def test_a_second_shard_is_the_first_with_another_number() -> None:
    (block,) = (each for each in blocks("yaml") if "worker-tail-1" in each)
    second = yaml.safe_load(block)["services"]["worker-tail-1"]
    first = compose_file.load({})["services"]["worker-tail-0"]
    without_warning = [word for word in first["command"] if word != "-W" and "running the worker" not in word]
    assert second["command"] == [word.replace("-0", "-1") for word in without_warning]
    test = [word.replace("-0", "-1") for word in first["healthcheck"]["test"]]
    assert second["healthcheck"]["test"] == test


def test_a_tag_replaces_the_former_one(tmp_path: Path) -> None:
    """The two lines of an upgrade, run by a shell."""
    (block,) = (each for each in blocks("") if "git pull" in each)
    lines = [line for line in block.splitlines() if "FENCELINE_TAG" in line]
    (tmp_path / "compose").mkdir()
    tag = tmp_path / "compose" / "tag.sh"
    tag.write_text("#!/bin/sh\necho 0.2.0-new\n")
    tag.chmod(0o755)
    (tmp_path / ".env").write_text("FENCELINE_TAG=0.1.0-old\nPORT=8000\n")
    subprocess.run(["sh", "-ec", "\n".join(lines)], cwd=tmp_path, check=True)
    assert (tmp_path / ".env").read_text() == "PORT=8000\nFENCELINE_TAG=0.2.0-new\n"


def test_anchors_of_links_within_the_text_exist() -> None:
    headings = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= anchors
