"""Proves that each failure is one clear line and exit status 2, whatever answers at a URL; what the program
needs, its completion, and that no error of its own is a traceback; and that what it reads of each answer is
described by the API, of the same type."""

import json
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from dashboard.models import Cluster
from fenceline_client import cli, shapes
from tests.cases import cases
from tests.client.conftest import Fenceline
from tests.client.program import PROGRAM
from tests.receivers import Authority, Manner, Receiver, answer, hold, raw
from tests.web import factories

SECRET = "secret-of-a-test"
LIST = {"items": [], "next": None, "as_of": None, "gaps": []}


def as_json(document: Any, status: int = 200, **headers: str) -> Manner:
    return answer(status, json.dumps(document).encode(), content_type="application/json", **headers)


@pytest.fixture(autouse=True)
def token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each command send SECRET."""
    monkeypatch.setenv("FENCELINE_TOKEN", SECRET)


@pytest.fixture
def asked(fenceline: Fenceline) -> Callable[..., str]:
    """Return the one line of a command that a server answers in some manner."""

    def asked(manner: Manner, *arguments: str) -> str:
        with Receiver(usually=manner) as there:
            base = there.url.removesuffix("/hook")
            done = fenceline("--url", base, *(arguments or ("incidents",)))
        assert (done.status, done.out) == (2, "")
        assert SECRET not in done.err
        return done.error.replace(base, "URL")

    return asked


@cases(
    (answer(200, b"<html>Welcome</html>", content_type="text/html"),
     "URL answered 200 with text/html that is no valid JSON. Check that the URL is Fenceline's, and the "
     "proxies between."),
    (answer(200, b'{"items": [', content_type="application/json"), "no valid JSON"),
    (answer(200, b"[" * 100_000, content_type="application/json"), "no valid JSON"),
    (answer(200, b"\xff\xfe\x00", content_type="application/json"), "no valid JSON"),
    (answer(302, location="https://sso.example.org/login"),
     "URL answered 302, a redirect to https://sso.example.org/login. Log in with the URL that serves the "
     "API."),
    (answer(401, b"<html>", content_type="text/html"),
     "URL answered 401: Unauthorized. Run: fenceline login URL"),
    (answer(404, b"<html>", content_type="text/html"), "URL answered 404: Not Found."),
    (answer(429, retry_after="7"), "URL answered 429: Too Many Requests. Try again in 7 s."),
    (answer(502, b"<html>nginx", content_type="text/html"), "502: Bad Gateway. Try again later."),
    (as_json({"detail": "The database is away."}, 503, retry_after="5"),
     "URL answered 503: The database is away. Try again in 5 s."),
    (answer(599), "URL answered 599: unknown status. Try again later."),
    (as_json({"detail": "There is nothing at /api/v1/incidents."}, 404),
     "Server and command differ in version: update the older one."),
    (as_json({"detail": f"I know {SECRET}\x1b[31m"}, 400), r"URL answered 400: I know [token]\x1b[31m"),
    (as_json([]), "A list of the API cannot be read"),
    (as_json("text"), "A list of the API cannot be read"),
    (as_json({**LIST, "items": [{}]}), "An answer of the API cannot be read"),
    (as_json({**LIST, "items": [{"number": "x"}]}), "'x' is no int"),
    (as_json({**LIST, "items": 7}), "A list of the API cannot be read"),
    (as_json({**LIST, "gaps": [7]}), "An answer of the API cannot be read"),
    (as_json({**LIST, "gaps": 7}), "An answer of the API cannot be read"),
    (as_json({"candidates": 7}, 400), "URL answered 400: Bad Request."),
    (as_json({"candidates": [7, {}, {"id": "a"}]}, 400), "Candidates: a on None."),
    (raw(b"garbage\r\n\r\n"), "URL cannot be reached"),
    (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nContent-Type: application/json\r\n\r\n{"),
     "URL cannot be reached"),
    (raw(), "URL cannot be reached"),
)  # fmt: skip
def test_each_bad_answer_is_one_line(asked: Callable[..., str], manner: Manner, line: str) -> None:
    assert line in asked(manner)


def test_a_server_that_does_not_answer_is_given_up(
    asked: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline_client.client._READ_S", 0.2)
    assert asked(hold) == "URL cannot be reached: timed out. Check the URL, and that Fenceline runs."


@cases(
    ("http://127.0.0.1:1", "Connection refused. Check the URL, and that Fenceline runs."),
    ("https://127.0.0.1:1", "Connection refused"),
    ("https://no-such-host.invalid", "Check the URL"),
    ("https://two words", "cannot be reached"),
)
def test_an_unreachable_host_is_named(fenceline: Fenceline, url: str, line: str) -> None:
    done = fenceline("--url", url, "incidents")
    assert done.status == 2
    assert done.error.startswith(f"{url} cannot be reached: ")
    assert line in done.error


def test_a_private_ca_is_named_in_the_environment(
    fenceline: Fenceline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with Receiver(usually=as_json(LIST), tls=authority.server("localhost")) as there:
        url = f"https://localhost:{there.port}"
        refused = fenceline("--url", url, "incidents")
        assert refused.status == 2
        assert "certificate" in refused.error
        assert refused.error.endswith("REQUESTS_CA_BUNDLE names the file of a private CA.")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate))
        assert fenceline("--url", url, "incidents").status == 0
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    assert "/no/such/file" in fenceline("--url", url, "incidents").error


def test_a_proxy_of_the_environment_is_used(fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver(usually=as_json(LIST)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        done = fenceline("--insecure-http", "--url", "http://fenceline.example.org", "incidents")
        assert done.status == 0
        (request,) = proxy.received
    assert request.path.startswith("http://fenceline.example.org/api/v1/incidents")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    closed = fenceline("--url", "https://fenceline.example.org", "incidents")
    assert closed.error.endswith("Connection refused. Check HTTPS_PROXY and NO_PROXY.")


def test_a_server_may_be_below_a_path_of_its_host(fenceline: Fenceline) -> None:
    with Receiver(usually=as_json(LIST)) as there:
        assert fenceline("--url", f"http://127.0.0.1:{there.port}/tools/fenceline/", "groups").status == 0
        (request,) = there.received
    assert request.path.partition("?")[0] == "/tools/fenceline/api/v1/groups"


def test_the_token_goes_to_the_server_and_no_password_of_netrc(
    fenceline: Fenceline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with Receiver(usually=as_json(LIST)) as there:
        assert fenceline("--url", f"http://127.0.0.1:{there.port}", "incidents").status == 0
        (request,) = there.received
    assert request.headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.django_db(transaction=True)
def test_the_apis_own_refusals_are_shown(
    fenceline: Fenceline, prod: Cluster, viewer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = factories.planned_action()
    refused = fenceline("execute", str(row.pk), "--confirm", row.plan["confirm"], "--reason", "test")
    assert refused.status == 2
    assert "answered 403: token ci-viewer may not do this: it needs the role operator" in refused.error
    missing = fenceline("execute", "999999999")
    expected = (2, "404: No action 999999999 is known.")
    assert (missing.status, missing.error.partition(" answered ")[2]) == expected
    monkeypatch.setenv("FENCELINE_TOKEN", "of-nobody")
    assert "answered 401: No such token is known." in fenceline("incidents").error


@cases(
    ((), "Missing command. See: fenceline --help"),
    (("incident",), "See: fenceline --help"),
    (("why",), "Missing argument 'ID'. See: fenceline why --help"),
    (("incidents", "--limit", "0"), "See: fenceline incidents --help"),
    (("safe-to-stop",), "Name a query, or a cluster by --cluster. See: fenceline safe-to-stop --help"),
    (("login", "https://127.0.0.1:1", "--token-file", "/no/such"), "No such file"),
)
def test_wrong_usage_is_one_line(fenceline: Fenceline, arguments: tuple[str, ...], line: str) -> None:
    done = fenceline(*arguments)
    assert done.status == 2
    assert line in done.error


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", ["click", "requests"])
def test_a_missing_package_is_named(tmp_path: Path, package: str) -> None:
    block = f"import sys; sys.modules[{package!r}] = None; from fenceline_client.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    expected = f"fenceline: the package {package} is missing. Install it: pip install 'fenceline[cli]'\n"
    assert done.stderr == expected


def test_an_older_python_is_named() -> None:
    block = "import sys; sys.version_info = (3, 9, 25); from fenceline_client.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("fenceline: the command line needs Python 3.11 or newer, this is 3.9.25: ")


def test_no_django_is_loaded() -> None:
    block = "import sys, fenceline_client.cli; print({'django', 'dashboard', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_completes_commands(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"COMP_WORDS": "fenceline saf", "COMP_CWORD": "1" if shell != "fish" else "saf"}
    for name, value in {**words, "_FENCELINE_COMPLETE": f"{shell}_complete"}.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(PROGRAM, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "safe-to-stop" in done.stdout


def test_an_error_of_the_program_is_one_line(fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("a\x1bb")

    monkeypatch.setattr(cli, "CommandLine", fails)
    done = fenceline("incidents")
    assert (done.status, done.error) == (
        2, r"An error of this program, please report it: KeyError: 'a\x1bb'",
    )  # fmt: skip


def test_help_names_every_command(fenceline: Fenceline) -> None:
    done = fenceline("--help")
    assert done.status == 0
    for name in ("login", "incidents", "transactions", "groups", "queries", "why", "watch", "plan", "execute",
                 "safe-to-stop", "doctor", "check"):  # fmt: skip
        assert f"\n  {name} " in done.out
        assert "Usage:" in fenceline(name, "--help").out


DESCRIBED = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())["components"][
    "schemas"
]
PLAIN = {"string": str, "integer": int, "boolean": bool}
SCHEMAS = {
    shapes.WatchedCluster: "ClusterOut",
    shapes.ListedCollector: "CollectorOut",
    shapes.UnseenPart: "Gap",
    shapes.ListedIncident: "IncidentOut",
    shapes.FullIncident: "IncidentDetail",
    shapes.RelatedFinding: "FindingOut",
    shapes.ListedTransaction: "TransactionOut",
    shapes.FullTransaction: "TransactionDetail",
    shapes.ListedGroup: "GroupOut",
    shapes.FullGroup: "GroupDetail",
    shapes.ListedQuery: "QueryOut",
    shapes.FullQuery: "QueryDetail",
    shapes.StopSafety: "SafeAnswer",
    shapes.ListedPartition: "PartitionOut",
    shapes.FullPartition: "PartitionDetail",
    shapes.PlannedAction: "OneActionOut",
    shapes.CapabilityReport: "CapabilitiesOut",
    shapes.PreflightReport: "PreflightOut",
}


@pytest.mark.parametrize("shape", SCHEMAS, ids=lambda shape: shape.__name__)
def test_each_field_is_the_apis(shape: type) -> None:
    assert list(differences(shape, DESCRIBED[SCHEMAS[shape]])) == []


def differences(shape: Any, schema: Mapping[str, Any], place: str = "") -> list[str]:
    """Return the fields of a shape, and of those in it, that a schema lacks or describes otherwise."""
    hints, wrong = get_type_hints(shape), []
    for field in fields(shape):
        where = f"{place}.{field.name}"
        described = schema["properties"].get(field.name)
        if described is None or field.name not in schema["required"]:
            wrong.append(f"{where}: missing")
        else:
            wrong += compared(hints[field.name], resolved(described), where)
    return wrong


def compared(hint: Any, described: Mapping[str, Any], where: str) -> list[str]:
    choices = [resolved(choice) for choice in described.get("anyOf", [described])]
    types_there = [choice for choice in choices if choice.get("type") != "null"]
    is_optional = isinstance(hint, types.UnionType)
    if is_optional != (len(types_there) < len(choices)):
        return [f"{where}: null or not"]
    inner = next(part for part in get_args(hint) if part is not type(None)) if is_optional else hint
    there, *others = types_there
    if others:  # An enumeration, or "".
        return [] if all(choice["type"] == "string" for choice in types_there) else [f"{where}: several"]
    if is_dataclass(inner):
        return differences(inner, there, where)
    if get_origin(inner) is tuple:
        return compared(get_args(inner)[0], resolved(there["items"]), f"{where}[]")
    if get_origin(inner) is Mapping:
        return compared(get_args(inner)[1], there["additionalProperties"], f"{where}[]")
    return [] if PLAIN[there["type"]] is inner else [f"{where}: {there['type']}"]


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that another one names."""
    name = schema.get("$ref") or (schema["allOf"][0]["$ref"] if "allOf" in schema else "")
    return DESCRIBED[name.rpartition("/")[2]] if name else schema
