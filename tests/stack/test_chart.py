"""Proves that the Helm chart starts what docker-compose.yml starts, with its limits, and that its values are
checked before a release. Nothing is rendered here: tests/matrix/test_helm.py does that."""

import json
import re
import tomllib
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from dashboard.config import load_config
from sandbox.options import ROOT
from tests.cases import cases
from tests.stack import compose_file

CHART = ROOT / "deploy" / "chart"
VALUES: Any = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Any = json.loads((CHART / "values.schema.json").read_text())
#: Parts of the chart, and their services in Compose.
PARTS = {
    "prepare": "prepare",
    "web": "web",
    "tail": "worker-tail-0",
    "pollers": "worker-pollers",
    "beat": "beat",
}


@pytest.fixture(scope="module")
def services() -> Any:
    return compose_file.load({})["services"]


def commands() -> Any:
    """Return the commands of the first shard."""
    text = (CHART / "files" / "commands.yaml").read_text()
    return yaml.safe_load(text.replace("{{ .shard }}", "0").replace("{{ .threads }}", "2"))


def problems(**changes: Any) -> list[str]:
    """Return what the schema finds in the default values with changes; a mapping is merged."""
    values = compose_file.merge(VALUES, {"secretName": "fenceline", **changes})
    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(SCHEMA).iter_errors(values)]


def test_the_commands_are_those_of_compose(services: Any) -> None:
    chart = commands()
    assert chart.keys() == {*PARTS, "tailHealth", "pollersHealth"}
    for part, service in PARTS.items():
        assert chart[part] == services[service]["command"], part


def test_every_variable_of_compose_is_one_of_the_chart(services: Any) -> None:
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    named = set(re.findall(r'\{name: (\w+)|secretVariable" \(list \. "(\w+)"', helpers))
    wanted = {name for part in PARTS.values() for name in services[part]["environment"]}
    given_by_secret_files = {name for name in wanted if name.endswith("_FILE")}
    prepared_once = {"FENCELINE_ADMIN_PASSWORD", "FENCELINE_INGEST_TOKEN"}
    assert wanted - given_by_secret_files - prepared_once <= {name for pair in named for name in pair}


def test_workers_are_ready_while_their_leases_are_renewed(services: Any) -> None:
    for part, name in (("tail", "worker-tail-0"), ("pollers", "worker-pollers")):
        assert services[name]["healthcheck"]["test"] == ["CMD", *commands()[f"{part}Health"]]


@pytest.mark.parametrize(("part", "service"), [each for each in PARTS.items() if each[0] != "prepare"])
def test_the_limits_are_those_of_compose(services: Any, part: str, service: str) -> None:
    limits = services[service]["deploy"]["resources"]["limits"]
    assert float(VALUES[part]["resources"]["limits"]["cpu"]) == float(limits["cpus"])
    memory = VALUES[part]["resources"]["limits"]["memory"]
    assert memory.lower().removesuffix("i") == limits["memory"]


def test_redis_is_the_one_of_compose(services: Any) -> None:
    assert VALUES["redis"]["image"] == services["redis"]["image"]
    arguments = re.search(r"args: (\[.+\])", (CHART / "templates" / "redis.yaml").read_text())
    assert arguments
    assert yaml.safe_load(arguments[1]) == services["redis"]["command"]


def test_chart_and_image_have_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert VALUES["image"]["tag"] == ""


def test_the_default_configuration_is_valid(tmp_path: Any) -> None:
    path = tmp_path / "fenceline.toml"
    path.write_text(VALUES["config"])
    assert len(load_config(path, {}).clusters) == 1


def test_the_schema_knows_each_value() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"].keys() - {"global"} == VALUES.keys()
    for name, value in VALUES.items():
        known = SCHEMA["properties"][name]
        if isinstance(value, dict) and known.get("additionalProperties") is False:
            assert known["properties"].keys() == value.keys(), name


def test_the_defaults_need_only_a_secret() -> None:
    assert problems() == []
    (problem,) = problems(secretName="")
    assert problem.startswith("$.secretName: ")


def test_the_guide_s_values_and_table_fit_the_chart() -> None:
    guide = (ROOT / "docs" / "deploying.md").read_text()
    section = guide.partition("## Kubernetes\n")[2].partition("\n## ")[0]
    example = re.search(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert example
    assert problems(**yaml.safe_load(example[1])) == []
    table = section.partition("| value |")[2]
    named = [name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in row.split(", ")]
    assert len(named) > 5
    for name in named:
        value = VALUES
        for key in name.strip("`").split("."):
            value = value[key]


@cases(
    {"image": {"tag": "latest"}},
    {"image": {"pullPolicy": "Sometimes"}},
    {"secret": "typo"},
    {"config": "no cluster"},
    {"database": {"url": "postgres://user:password@db/fenceline"}},
    {"database": {"url": "mysql://user@db/fenceline"}},
    {"redis": {"bundled": False, "url": "redis://:password@redis/0"}},
    {"redis": {"url": "redis://redis/0"}},
    {"redis": {"image": "redis"}},
    {"basePath": "fenceline"},
    {"basePath": "/fenceline/"},
    {"allowedHosts": ["*"]},
    {"ingress": {"enabled": True}},
    {"tail": {"shards": 0}},
    {"pollers": {"threads": 201}},
    {"environment": {"NUMBER": 1}},
    ids=str,
)
def test_a_bad_value_is_refused(changes: dict[str, Any]) -> None:
    assert problems(**changes)


@cases(
    {"image": {"repository": "registry.example/fenceline", "tag": "0.1.0-0a1b2c3d4e5f"}},
    {"database": {"url": "postgres://fenceline@db.example:5432/fenceline?sslmode=require"}},
    {"redis": {"bundled": False}},
    {"redis": {"bundled": False, "url": "rediss://redis.example:6379/0"}},
    {"basePath": "/tools/fenceline"},
    {"ingress": {"enabled": True, "host": "fenceline.example", "tlsSecretName": "tls"}},
    {"tail": {"shards": 4}},
    ids=str,
)
def test_a_good_value_is_accepted(changes: dict[str, Any]) -> None:
    assert problems(**changes) == []
