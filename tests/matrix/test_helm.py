"""Proves of the Helm chart, rendered by Helm, that its manifests fit the Kubernetes schemas, that they run
Compose's commands with Compose's variables, and that few rights, probes and paths are right."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.options import ROOT
from tests.stack import compose_file

pytestmark = pytest.mark.matrix
CHART = ROOT / "deploy" / "chart"
#: The oldest version of Chart.yaml, one in the middle, and the newest that the package has.
KUBERNETES = ("1.25", "1.31", "1.37")
SCHEMAS = "kubernetes-validate==1.37.0"
CHECK = """
import json, sys, kubernetes_validate
for manifest in json.load(sys.stdin):
    kubernetes_validate.validate(manifest, sys.argv[1], strict=True)
"""
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "external stores": {
        "database": {"url": "postgres://fenceline@db.example:5432/fenceline"},
        "redis": {"bundled": False, "url": "rediss://redis.example:6379/0"},
    },
    "stores by secret": {"redis": {"bundled": False}},
    "sub-path": {
        "basePath": "/fenceline",
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "tools.example",
            "tlsSecretName": "tools-tls",
            "annotations": {"nginx.ingress.kubernetes.io/proxy-read-timeout": "3600"},
        },
    },
    "4 shards": {"tail": {"shards": 4}},
    "everything": {
        "image": {"repository": "registry.example/fenceline", "pullSecrets": [{"name": "registry"}]},
        "environmentSecretName": "kafka",
        "environment": {"HTTPS_PROXY": "http://proxy.example:3128"},
        "serviceAccountName": "fenceline",
        "volumes": [{"name": "certificates", "secret": {"secretName": "ca"}}],
        "volumeMounts": [{"name": "certificates", "mountPath": "/etc/certificates", "readOnly": True}],
        "podAnnotations": {"example.org/team": "data"},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "data", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "readOnly": True,
        "apiRequestsPerMinute": 600,
        "otlpMetricsEndpoint": "http://collector.example:4318/v1/metrics",
        "logFormat": "json",
    },
}

Manifest = dict[str, Any]


def helm(*arguments: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart with values; skip the test where no Helm is."""
    beside = Path(sys.executable).with_name("helm")
    program = str(beside) if beside.exists() else shutil.which("helm")
    if program is None:
        pytest.skip("needs helm on PATH: `make test-matrix` builds it where Go is installed")
    # A Helm that Go has built knows no cluster's version but an old one.
    release = ["--namespace", "data", "--kube-version", KUBERNETES[-1], "--values", "-"]
    command = [program, *arguments, str(CHART), *release]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)


def rendered(values: Mapping[str, Any]) -> list[Manifest]:
    """Return the manifests of a release named prod."""
    done = helm("template", "prod", values={"secretName": "fenceline", **values})
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def pods(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Return the pod template of each part."""
    found = [each for each in manifests if each["kind"] in ("Deployment", "Job")]
    return {
        each["metadata"]["name"].removeprefix("prod-fenceline-"): each["spec"]["template"] for each in found
    }


def containers(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Return the container of each part; each has one."""
    return {name: pod["spec"]["containers"][0] for name, pod in pods(manifests).items()}


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a container; those of a Secret as `KEY of SECRET`."""
    return {each["name"]: each["value"] if "value" in each else _secret(each) for each in container["env"]}


def _secret(variable: Mapping[str, Any]) -> str:
    reference = variable["valueFrom"]["secretKeyRef"]
    return f"{reference['key']} of {reference['name']}"


@pytest.fixture(scope="module", params=VARIANTS)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    """Each variant of the chart in turn."""
    return rendered(VARIANTS[request.param])


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Kubernetes schemas of the package index, in a folder of their own."""
    folder = tmp_path_factory.mktemp("schemas")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), SCHEMAS]
    subprocess.run(install, check=True)
    return folder


def checked(manifests: Sequence[Manifest], schemas: Path, version: str) -> str:
    """Return the first problem that the schemas of a version find, "" for none."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK, version], input=json.dumps(manifests), env={"PYTHONPATH": str(schemas)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_fit_the_schemas_of_kubernetes(
    manifests: list[Manifest], schemas: Path, version: str
) -> None:
    assert checked(manifests, schemas, version) == ""


def test_the_schemas_refuse_a_misspelled_key(schemas: Path) -> None:
    manifests = rendered({})
    web = containers(manifests)["web"]
    web["readynessProbe"] = web.pop("readinessProbe")
    assert "readynessProbe" in checked(manifests, schemas, KUBERNETES[-1])


@pytest.mark.parametrize("name", VARIANTS)
def test_helm_lints_the_chart(name: str) -> None:
    done = helm("lint", "--strict", values={"secretName": "fenceline", **VARIANTS[name]})
    assert done.returncode == 0, done.stdout + done.stderr


def test_helm_refuses_a_release_without_a_secret() -> None:
    done = helm("template", "prod", values={})
    assert done.returncode != 0
    assert "secretName" in done.stderr


def test_parts_run_the_commands_of_compose() -> None:
    services = compose_file.load({})["services"]
    parts = containers(rendered({}))
    redis = parts.pop("redis")
    assert redis["args"] == services["redis"]["command"]
    for name, container in parts.items():
        service = services.get(f"worker-{name}") or services[name]
        assert container["command"] == service["command"], name


def test_parts_have_the_variables_of_compose() -> None:
    services = compose_file.load({})["services"]
    for name, container in containers(rendered({})).items():
        if name == "redis":
            continue
        service = services.get(f"worker-{name}") or services[name]
        # A key of a Secret is a variable here; secrets in files are Compose's.
        wanted = {each for each in service["environment"] if not each.endswith("_FILE")}
        assert wanted <= variables(container).keys(), name
        own = {"FENCELINE_ADMIN_PASSWORD", "FENCELINE_INGEST_TOKEN"}
        assert (own <= variables(container).keys()) is (name == "prepare"), name


def test_secrets_come_from_the_existing_secret_alone() -> None:
    manifests = rendered(VARIANTS["stores by secret"])
    assert not [each for each in manifests if each["kind"] == "Secret"]
    told = variables(containers(manifests)["prepare"])
    for key in ("SECRET_KEY", "DATABASE_URL", "POSTGRES_PASSWORD", "REDIS_URL", "FENCELINE_ADMIN_PASSWORD"):
        assert told[key] == f"{key} of fenceline"


def test_external_stores_replace_the_bundled_redis() -> None:
    manifests = rendered(VARIANTS["external stores"])
    assert not [each for each in manifests if each["metadata"]["name"].endswith("-redis")]
    for container in containers(manifests).values():
        told = variables(container)
        assert told["DATABASE_URL"] == "postgres://fenceline@db.example:5432/fenceline"
        assert told["REDIS_URL"] == "rediss://redis.example:6379/0"


def test_the_schema_job_ends_before_other_parts_change() -> None:
    hooks = [each for each in rendered({}) if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    order = sorted(hooks, key=lambda each: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]))
    assert [each["kind"] for each in order] == ["ConfigMap", "Job"]
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in hooks} == {"pre-install,pre-upgrade"}
    (config,) = [each for each in order[1]["spec"]["template"]["spec"]["volumes"] if each["name"] == "config"]
    assert config["configMap"]["name"] == order[0]["metadata"]["name"]


def test_a_shard_is_a_worker_of_its_own() -> None:
    parts = containers(rendered(VARIANTS["4 shards"]))
    assert {name for name in parts if name.startswith("tail")} == {f"tail-{number}" for number in range(4)}
    for number in range(4):
        container = parts[f"tail-{number}"]
        assert f"tail-{number},offsets-{number}" in container["command"]
        assert container["readinessProbe"]["exec"]["command"][-1] == f"tail-{number}"
        assert variables(container)["SHARDS"] == "4"


def test_a_sub_path_is_in_the_setting_the_ingress_and_the_probes() -> None:
    manifests = rendered(VARIANTS["sub-path"])
    web = containers(manifests)["web"]
    assert variables(web)["FENCELINE_BASE_PATH"] == "/fenceline"
    paths = {name: web[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {
        "startup": "/fenceline/healthz",
        "liveness": "/fenceline/healthz",
        "readiness": "/fenceline/readyz",
    }
    (ingress,) = [each for each in manifests if each["kind"] == "Ingress"]
    (rule,) = ingress["spec"]["rules"]
    assert (rule["host"], rule["http"]["paths"][0]["path"]) == ("tools.example", "/fenceline")


def test_an_ingress_with_tls_sets_hosts_origins_and_cookies() -> None:
    told = variables(containers(rendered(VARIANTS["sub-path"]))["web"])
    assert {"localhost", "tools.example", "prod-fenceline"} <= set(told["ALLOWED_HOSTS"].split(","))
    assert (told["CSRF_TRUSTED_ORIGINS"], told["SECURE_COOKIES"]) == ("https://tools.example", "1")
    plain = variables(containers(rendered({}))["web"])
    assert (plain["CSRF_TRUSTED_ORIGINS"], plain["SECURE_COOKIES"]) == ("", "0")


def test_probes_ask_for_a_host_that_is_allowed() -> None:
    web = containers(rendered({}))["web"]
    for kind in ("startup", "liveness", "readiness"):
        assert web[f"{kind}Probe"]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_containers_have_few_rights(manifests: list[Manifest]) -> None:
    for name, pod in pods(manifests).items():
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}, name


def test_each_image_has_a_version(manifests: list[Manifest]) -> None:
    for container in containers(manifests).values():
        assert container["image"].rpartition(":")[2][0].isdigit()


def test_each_selector_finds_the_pods_of_one_part(manifests: list[Manifest]) -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(manifests).items()}
    for manifest in manifests:
        spec = manifest.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector")
        if selector:
            wanted = selector.get("matchLabels", selector).items()
            assert len([name for name, has in labels.items() if wanted <= has.items()]) == 1
    (budget,) = [each for each in manifests if each["kind"] == "PodDisruptionBudget"]
    assert budget["spec"]["maxUnavailable"] == 1


def test_another_configuration_restarts_the_pods() -> None:
    def checksum(values: Mapping[str, Any]) -> str:
        return str(pods(rendered(values))["web"]["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) != checksum({"config": '[clusters.other]\n"bootstrap.servers" = "other:9092"\n'})
