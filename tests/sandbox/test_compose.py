"""Proves that docker-compose.yml starts what `make up` starts and gives nothing away; no engine runs here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.java import locked
from sandbox.options import ROOT, read
from sandbox.ports import HOST
from sandbox.supervisor import Part
from sandbox.up import Stack

OURS = ("prepare", "web", "worker-tail-0", "worker-pollers", "beat")
DEMO = ("demo", "spark")
THEIRS = ("postgres", "redis", "kafka")
#: What a part is given by `make up` and has from the image here.
BY_IMAGE = {"DJANGO_SETTINGS_MODULE", "PYTHONPATH", "PYTHONUNBUFFERED"}


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


@pytest.fixture
def stack(tmp_path: Path, compose: Any) -> Stack:
    """What `make up` would start with a database, a Redis and a Kafka of one's own."""
    (tmp_path / "data" / "secrets").mkdir(parents=True)
    environment = {
        "FENCELINE_DATA": str(tmp_path / "data"),
        "BOOTSTRAP": "kafka:9092",
        "DATABASE_URL": "postgres://postgres/fenceline",
        "REDIS_URL": compose["services"]["web"]["environment"]["REDIS_URL"],
    }
    return Stack(read(environment))


def commands(stack: Stack) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the parts with their commands, as they read in a container."""
    for part in stack.parts():
        assert not callable(part.command)
        yield part.name, [_there(word, stack) for word in part.command]


def _there(word: str, stack: Stack) -> str:
    if word == sys.executable:
        return "python"
    if word == HOST:
        return "0.0.0.0"
    return word.replace(str(stack.data), "/data").removeprefix(f"{ROOT}/")


def defaults(text: str) -> str:
    """Return a value with the defaults of its variables."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_the_commands_are_those_of_make_up(stack: Stack, compose: Any) -> None:
    wanted = dict(commands(stack))
    assert tuple(wanted) == ("prepare", "worker-tail-0", "worker-pollers", "beat", "web")
    for name, command in wanted.items():
        assert [defaults(word) for word in compose["services"][name]["command"]] == command, name


def test_the_demo_runs_as_in_make_up(tmp_path: Path, compose: Any) -> None:
    (tmp_path / "data" / "secrets").mkdir(parents=True)
    stack = Stack(read({"FENCELINE_DATA": str(tmp_path / "data")}))
    parts: dict[str, Part] = {part.name: part for part in stack.parts()}
    demo = parts["demo"].command
    assert not callable(demo)
    there = [_there(word, stack).replace(stack.bootstrap, "kafka:9092") for word in demo]
    assert compose["services"]["demo"]["command"] == there
    spark = compose["services"]["spark"]
    *command, jars = spark["command"]
    assert command == ["python", "-m", "sandbox.demo_query", "kafka:9092", "/data/spark"]
    assert set(jars.split(",")) == {f"/opt/jars/{jar.filename}" for jar in locked("spark-connector")}
    added = parts["spark"].environment.keys() - stack.environment.keys()
    assert spark["environment"].keys() == added


def test_every_part_is_told_what_make_up_tells_it(stack: Stack, compose: Any) -> None:
    prepare = compose["services"]["prepare"]["environment"].keys()
    assert stack.environment.keys() - BY_IMAGE <= prepare
    for name in OURS[1:]:
        told = compose["services"][name]["environment"].keys()
        # Only the part that sets password and token is to know them.
        assert prepare - told == {"FENCELINE_ADMIN_PASSWORD", "FENCELINE_INGEST_TOKEN"}, name


def test_parts_wait_for_what_they_need(compose: Any) -> None:
    services = compose["services"]
    ready = {"condition": "service_healthy"}
    done = {"condition": "service_completed_successfully"}
    assert services["prepare"]["depends_on"] == {"postgres": ready}
    assert services["web"]["depends_on"] == {"prepare": done, "redis": ready}
    for name in ("worker-tail-0", "worker-pollers", "beat"):
        needs = {"prepare": done, "redis": ready, "kafka": {**ready, "required": False}}
        assert services[name]["depends_on"] == needs
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[name], name


def test_secrets_have_no_default_and_nothing_else_is_required(compose: Any) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    required = set(re.findall(r"\$\{(\w+):\?[^}]+\}", text))
    assert required == {
        "SECRET_KEY",
        "POSTGRES_PASSWORD",
        "FENCELINE_ADMIN_PASSWORD",
        "FENCELINE_INGEST_TOKEN",
    }
    assert required == set(re.findall(r"^(\w+)=", _env_lines(), re.MULTILINE))
    for name, service in compose["services"].items():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN|DATABASE_URL", key):
                assert ":?" in value, f"{name}: {key}"


def _env_lines() -> str:
    """Return the lines that docs/deploying.md puts into .env."""
    text = (ROOT / "docs" / "deploying.md").read_text()
    return text.partition("cat > .env")[2].partition("\nEOF")[0]


def test_nothing_listens_but_the_page_on_the_loopback(compose: Any) -> None:
    ports = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert ports == {"web": ["127.0.0.1:${PORT:-8000}:8000"]}
    assert compose["networks"]["store"]["internal"] is True
    for name in ("postgres", "redis"):
        assert compose["services"][name]["networks"] == ["store"]


def test_containers_may_do_little_and_come_back(compose: Any) -> None:
    services = compose["services"]
    assert set(services) == {*OURS, *DEMO, *THEIRS}
    for name in (*OURS, *DEMO):
        service = services[name]
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["build"]["target"] == ("demo" if name in DEMO else "fenceline"), name
        assert ("profiles" in service) == (name in DEMO), name
    for name, service in services.items():
        assert service["restart"] == ("no" if name == "prepare" else "unless-stopped"), name
    for name in THEIRS:
        assert re.search(r":\d+", services[name]["image"]), "a version is named"
    for name in ("postgres", "kafka"):
        (volume,) = services[name]["volumes"]
        assert volume.partition(":")[0] in compose["volumes"], "what is kept is kept in a named volume"


def test_images_end_as_a_user_who_is_nobody(dockerfile: str) -> None:
    stages = re.split(r"^FROM ", dockerfile, flags=re.MULTILINE)[1:]
    ends = {
        stage.splitlines()[0].split()[-1]: re.findall(r"^USER (\S+)", stage, re.MULTILINE) for stage in stages
    }
    assert ends["fenceline"] == ["fenceline"]
    assert ends["demo"][-1] == "fenceline"
    assert "requirements.txt" in stages[0], "what is installed is what is locked"


def test_an_image_holds_the_programs_and_no_state() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    taken = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert all((ROOT / name).exists() for name in taken)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests", "benchmarks"} <= taken
    assert not taken & {"tests", "benchmarks", ".data", ".git", ".env"}


def test_the_file_is_what_the_compose_specification_says() -> None:
    schema = ["--builtin-schema", "vendor.compose-spec"]
    command = [str(Path(sys.executable).with_name("check-jsonschema")), *schema, "docker-compose.yml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
