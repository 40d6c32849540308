"""Proves that docker-compose.yml starts what `make up` starts, within limits, and gives nothing away; that
secrets may be files, stores may be elsewhere, images have one build each. No engine runs here."""

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from uvicorn.middleware.proxy_headers import _TrustedHosts

from sandbox.java import locked_jars
from sandbox.options import ROOT, read_options
from sandbox.ports import HOST
from sandbox.supervisor import Part
from sandbox.up import Stack
from tests.stack import compose_file
from tests.stack.test_deployment_guide import OVERRIDES

SCALE = ("docker-compose.yml", "compose.scale.yml")
FILES = ("docker-compose.yml", "compose/stores.yml", "compose/external/stores.yml")
OURS = ("prepare", "web", "worker-tail-0", "worker-pollers", "beat")
DEMO = ("demo", "spark")
THEIRS = ("postgres", "redis", "kafka")
SECRETS = ("SECRET_KEY", "POSTGRES_PASSWORD", "FENCELINE_ADMIN_PASSWORD", "FENCELINE_INGEST_TOKEN")
#: What a part is given by `make up` and has from the image here.
BY_IMAGE = {"DJANGO_SETTINGS_MODULE", "PYTHONPATH", "PYTHONUNBUFFERED"}


@pytest.fixture(scope="module")
def compose() -> Any:
    return compose_file.load({})


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
    return Stack(read_options(environment))


def commands(stack: Stack) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the parts with their commands, as they read in a container."""
    for part in stack.list_parts():
        assert not callable(part.command)
        yield part.name, [_there(word, stack) for word in part.command]


def _there(word: str, stack: Stack) -> str:
    if word == sys.executable:
        return "python"
    if word == HOST:
        return "0.0.0.0"
    return word.replace(str(stack.data), "/data").removeprefix(f"{ROOT}/")


def test_the_commands_are_those_of_make_up(stack: Stack, compose: Any) -> None:
    wanted = dict(commands(stack))
    assert tuple(wanted) == ("prepare", "worker-tail-0", "worker-pollers", "beat", "web")
    for name, command in wanted.items():
        assert compose["services"][name]["command"] == command, name


def test_the_demo_runs_as_in_make_up(tmp_path: Path, compose: Any) -> None:
    (tmp_path / "data" / "secrets").mkdir(parents=True)
    stack = Stack(read_options({"FENCELINE_DATA": str(tmp_path / "data")}))
    parts: dict[str, Part] = {part.name: part for part in stack.list_parts()}
    demo = parts["demo"].command
    assert not callable(demo)
    there = [_there(word, stack).replace(stack.bootstrap, "kafka:9092") for word in demo]
    assert compose["services"]["demo"]["command"] == there
    spark = compose["services"]["spark"]
    *command, jars = spark["command"]
    assert command == ["python", "-m", "sandbox.demo_query", "kafka:9092", "/data/spark"]
    assert set(jars.split(",")) == {f"/opt/jars/{jar.filename}" for jar in locked_jars("spark-connector")}
    added = parts["spark"].environment.keys() - stack.environment.keys()
    assert spark["environment"].keys() == added


def test_every_part_gets_the_environment_of_make_up(stack: Stack, compose: Any) -> None:
    prepare = compose["services"]["prepare"]["environment"].keys()
    assert stack.environment.keys() - BY_IMAGE <= prepare
    for name in OURS[1:]:
        told = compose["services"][name]["environment"].keys()
        # Only the part that sets password and token is to know them.
        only = ("FENCELINE_ADMIN_PASSWORD", "FENCELINE_INGEST_TOKEN")
        assert prepare - told == {f"{secret}{kind}" for secret in only for kind in ("", "_FILE")}, name


def test_parts_wait_for_what_they_need(compose: Any) -> None:
    services = compose["services"]
    ready = {"condition": "service_healthy"}
    done = {"condition": "service_completed_successfully"}
    # A store that is elsewhere is not waited for.
    here = {**ready, "required": False}
    assert services["prepare"]["depends_on"] == {"postgres": here}
    assert services["web"]["depends_on"] == {"prepare": done, "redis": here}
    for name in ("worker-tail-0", "worker-pollers", "beat"):
        needs = {"prepare": done, "redis": here, "kafka": here}
        assert services[name]["depends_on"] == needs
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[name], name


def test_secrets_have_no_default(compose: Any) -> None:
    assert set(SECRETS) == set(re.findall(r"^(\w+)=", _env_lines(), re.MULTILINE))
    for name, service in compose["services"].items():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN", key):
                assert value == "", f"{name}: {key}"
    assert urlsplit(compose["services"]["web"]["environment"]["DATABASE_URL"]).password is None


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_may_be_a_file(compose: Any, name: str) -> None:
    with_file = compose_file.load({f"{name}_FILE": "./secrets/it"})
    users = [
        each for each in with_file["services"].values() if each.get("environment", {}).get(f"{name}_FILE")
    ]
    assert users
    for service in users:
        folder, _, mounted = service["environment"][f"{name}_FILE"].rpartition("/")
        assert folder == "/run/secrets"
        assert mounted in service["secrets"]
        assert service["environment"][name] == ""
        assert with_file["secrets"][mounted] == {"file": "./secrets/it"}
        without = ROOT / compose["secrets"][mounted]["file"]
        assert without.read_bytes() == b""


@pytest.mark.parametrize(("variable", "store"), [("DATABASE_URL", "postgres"), ("REDIS_URL", "redis")])
def test_an_external_store_replaces_the_bundled_one(compose: Any, variable: str, store: str) -> None:
    url = "scheme://elsewhere.example/1"
    changed = compose_file.load({variable: url})["services"]
    assert changed[store]["profiles"], "it does not start"
    assert not compose["services"][store].get("profiles")
    other = {"postgres": "redis", "redis": "postgres"}[store]
    assert changed[other] == compose["services"][other]
    for name in OURS:
        assert changed[name]["environment"][variable] == url, name


def _env_lines() -> str:
    """Return the lines that docs/deploying.md puts into .env."""
    text = (ROOT / "docs" / "deploying.md").read_text()
    return text.partition("cat > .env")[2].partition("\nEOF")[0]


def test_nothing_listens_but_the_page_on_the_loopback(compose: Any) -> None:
    ports = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert ports == {"web": ["127.0.0.1:8000:8000"]}
    assert compose["networks"]["store"]["internal"] is True
    for name in ("postgres", "redis"):
        assert compose["services"][name]["networks"] == ["store"]


def test_containers_have_few_rights_and_restart(compose: Any) -> None:
    services = compose["services"]
    assert set(services) == {*OURS, *DEMO, *THEIRS}
    for name in (*OURS, *DEMO):
        service = services[name]
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert ("profiles" in service) == (name in DEMO), name
    for name, service in services.items():
        assert service["restart"] == ("no" if name == "prepare" else "unless-stopped"), name
    for name in THEIRS:
        assert re.search(r":\d+", services[name]["image"]), "a version is named"
    for name in ("postgres", "kafka"):
        (volume,) = services[name]["volumes"]
        assert volume.partition(":")[0] in compose["volumes"], "what is kept is kept in a named volume"


@pytest.mark.parametrize("names", [SCALE[:1], SCALE])
def test_every_resource_of_a_container_has_a_limit(names: Sequence[str]) -> None:
    for name, service in compose_file.load({}, *names)["services"].items():
        options = service["logging"]["options"]
        assert service["logging"]["driver"] == "json-file"
        assert (options["max-size"], options["max-file"]) == ("10m", "5"), name
        resources = service["deploy"]["resources"]
        assert float(resources["limits"]["cpus"]) <= 2, "a host of two cores is enough"
        assert megabytes(resources["reservations"]["memory"]) < megabytes(resources["limits"]["memory"]), name
        assert all("size=" in each for each in service.get("tmpfs", ())), name


def test_two_gigabytes_are_reserved_for_parts_other_than_the_demo(compose: Any) -> None:
    services = compose["services"].items()
    reserved = {
        name: megabytes(each["deploy"]["resources"]["reservations"]["memory"])
        for name, each in services
        if name not in (*DEMO, "prepare")
    }
    assert sum(reserved.values()) <= 2048


def megabytes(text: str) -> int:
    number, unit = int(text[:-1]), text[-1]
    return number * {"m": 1, "g": 1024}[unit]


def test_each_image_is_built_once_and_waited_for_by_its_services(compose: Any) -> None:
    services = compose["services"]
    builders = {"fenceline": "prepare", "demo": "demo"}
    built = {name: each["build"]["target"] for name, each in services.items() if "build" in each}
    assert built == {name: target for target, name in builders.items()}
    for name in (*OURS, *DEMO):
        builder = builders["demo" if name in DEMO else "fenceline"]
        assert services[name]["image"] == services[builder]["image"], name
        if name != builder:
            assert builder in services[name]["depends_on"], name
            assert services[name]["pull_policy"] == "never", name


def test_images_are_tagged_by_version_and_commit(tmp_path: Path, compose: Any) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert compose["services"]["web"]["image"] == f"fenceline:{version}"
    tagged = compose_file.load({"FENCELINE_TAG": "1.2.3-abc"})["services"]
    assert tagged["web"]["image"] == "fenceline:1.2.3-abc"
    assert tagged["prepare"]["build"]["args"]["FENCELINE_TAG"] == "1.2.3-abc"
    (tmp_path / "compose").mkdir()
    for name in ("compose/tag.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    commit = git(tmp_path, "init", "-q", ".") or git(tmp_path, "add", ".") or committed(tmp_path)
    assert run(tmp_path, "compose/tag.sh") == f"{version}-{commit}"
    (tmp_path / "pyproject.toml").open("a").write("\n")
    assert run(tmp_path, "compose/tag.sh") == f"{version}-{commit}-changed"


def git(folder: Path, *arguments: str) -> str:
    return run(folder, "git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments)


def committed(folder: Path) -> str:
    git(folder, "commit", "-q", "-m", "a")
    return git(folder, "rev-parse", "--short=12", "HEAD")


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_client_s_address_is_taken_from_named_proxies_only() -> None:
    def trusted_hosts(*names: str, **environment: str) -> _TrustedHosts:
        web = compose_file.load(environment, *names)["services"]["web"]
        return _TrustedHosts(web["environment"]["FORWARDED_ALLOW_IPS"])

    assert not any(address in trusted_hosts() for address in ("172.18.0.1", "127.0.0.1", "::1"))
    text = (ROOT / "docs" / "deploying.md").read_text()
    named = re.search(r"`FORWARDED_ALLOW_IPS=(\S+)`", text)
    assert named
    by_docs = trusted_hosts(FORWARDED_ALLOW_IPS=named[1])
    assert "172.18.0.1" in by_docs
    assert "203.0.113.7" not in by_docs
    assert "172.18.0.5" in trusted_hosts(*SCALE), "its only way in is the proxy"
    nginx = (ROOT / "compose" / "nginx.conf").read_text()
    assert set(re.findall(r"set_real_ip_from (\S+);", nginx)) == set(named[1].split(","))


def test_with_a_proxy_in_front_web_has_no_port_and_may_run_twice(compose: Any) -> None:
    scaled = compose_file.load({"PORT": "8123"}, *SCALE)["services"]
    assert not scaled["web"].get("ports")
    assert "container_name" not in scaled["web"]
    (port,) = scaled["proxy"]["ports"]
    inside = port.removeprefix("127.0.0.1:8123:")
    nginx = (ROOT / "compose" / "nginx.conf").read_text()
    assert f"listen {inside};" in nginx
    command = compose["services"]["web"]["command"]
    assert f"set $web web:{command[command.index('--port') + 1]};" in nginx
    assert "proxy_set_header Upgrade $http_upgrade;" in nginx, "WebSockets pass"
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in nginx, "/metrics is for tokens"
    proxy = scaled["proxy"]
    assert (proxy["read_only"], proxy["cap_drop"]) == (True, ["ALL"])
    written = re.findall(r"^\s*(?:pid|\w+_temp_path) (\S+);", nginx, re.MULTILINE)
    assert all(path.startswith("/tmp/") for path in written)


def test_images_run_as_an_unprivileged_user(dockerfile: str) -> None:
    stages = re.split(r"^FROM ", dockerfile, flags=re.MULTILINE)[1:]
    ends = {
        stage.splitlines()[0].split()[-1]: re.findall(r"^USER (\S+)", stage, re.MULTILINE) for stage in stages
    }
    assert ends["fenceline"] == ["fenceline"]
    assert ends["demo"][-1] == "fenceline"
    assert "requirements.txt" in stages[0], "what is installed is what is locked"


def test_no_image_has_the_packages_twice(dockerfile: str) -> None:
    stages = {}
    for stage in re.split(r"^FROM ", dockerfile, flags=re.MULTILINE)[1:]:
        first, _, rest = stage.partition("\n")
        parent, name = first.split(" AS ")
        stages[name] = (parent, re.findall(r"^COPY .*?(\S+)$", rest, re.MULTILINE).count("/opt/fenceline"))
    for name in ("fenceline", "demo"):
        copies = 0
        while name in stages:
            name, here = stages[name]
            copies += here
        assert copies == 1


def test_a_package_index_reaches_pip_and_uv(tmp_path: Path, dockerfile: str, compose: Any) -> None:
    step = re.search(r"^RUN (if \[ -n \"\$PACKAGE_INDEX.*?fi)$", dockerfile, re.MULTILINE | re.DOTALL)
    assert step
    (tmp_path / "etc").mkdir()
    shell = step[1].replace("/etc", str(tmp_path / "etc"))
    url = "https://user:secret@packages.example/simple"
    subprocess.run(["sh", "-c", shell], env={"PACKAGE_INDEX": "", "PATH": "/usr/bin:/bin"}, check=True)
    assert not list((tmp_path / "etc").iterdir())
    subprocess.run(["sh", "-c", shell], env={"PACKAGE_INDEX": url, "PATH": "/usr/bin:/bin"}, check=True)
    pip = configparser.RawConfigParser()
    pip.read(tmp_path / "etc" / "pip.conf")
    assert pip["global"]["index-url"] == url
    uv = tomllib.loads((tmp_path / "etc" / "uv" / "uv.toml").read_text())
    assert uv == {"index": [{"url": url, "default": True}]}
    arguments = compose["services"]["prepare"]["build"]["args"]
    assert arguments.keys() == set(re.findall(r"^ARG (\w+)=", dockerfile, re.MULTILINE)) - {"PYTHON"}


def test_the_ca_of_a_build_is_in_no_layer(dockerfile: str, compose: Any) -> None:
    steps = re.findall(r"^(?:RUN|COPY|ARG|ENV) (?:.*\\\n)*.*$", dockerfile, re.MULTILINE)
    asks_network = [each for each in steps if re.search(r"(pip install|sandbox\.java fetch)", each)]
    assert len(asks_network) == 4
    for step in steps:
        mounts_it = "--mount=type=secret,id=build_ca" in step and "--mount=type=tmpfs,target=/ca" in step
        assert mounts_it is (step in asks_network), step
        assert ("/run/secrets" in step) is mounts_it, step
        assert not (step.startswith(("COPY", "ARG")) and re.search(r"pem|CA_FILE", step)), step
    for service in compose["services"].values():
        assert service.get("build", {}).get("secrets", ["build_ca"]) == ["build_ca"]
    assert (ROOT / compose["secrets"]["build_ca"]["file"]).read_bytes() == b""


def test_no_key_and_no_certificate_reaches_a_build() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert not [line for line in lines if line.startswith("!") and re.search(r"compose|pem|key|env", line)]
    assert lines[-3:] == ["**/*.pem", "**/*.key", "**/.env*"]


def test_an_image_has_the_programs_and_no_state() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    taken = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert all(list(ROOT.glob(name)) for name in taken)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests", "benchmarks"} <= taken
    assert not taken & {"tests", "benchmarks", ".data", ".git", ".env"}


def test_files_and_overrides_of_the_guide_match_the_compose_specification(tmp_path: Path) -> None:
    schema = ["--builtin-schema", "vendor.compose-spec"]
    # JSON has no tag for what Compose resets.
    texts = [(ROOT / SCALE[1]).read_text().replace("!reset ", ""), *OVERRIDES]
    others = [tmp_path / f"{number}.yml" for number in range(len(texts))]
    for path, text in zip(others, texts, strict=True):
        path.write_text(text)
    command = [Path(sys.executable).with_name("check-jsonschema"), *schema, *FILES, *others]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
