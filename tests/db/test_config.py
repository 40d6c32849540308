"""Proves that a configuration is either used whole or refused in one line with file, key and remedy; that
each secret may come from a file, and that every mistake with one is one clear line."""

import json
import re
import subprocess
import traceback
from pathlib import Path

import pytest

from dashboard.config import CheckpointRoot, Config, ConfigError, load_config
from dashboard.runtime.environment import SECRETS, SecretError, read_secret, with_secrets
from fenceline.alerts.engine import Alerting
from fenceline.engines.status import EngineKind
from fenceline.kafka.scope import Scope
from fenceline.limits import Limits
from sandbox.options import ROOT
from tests.cases import cases
from tests.db.conftest import run_python

GOOD = """
[clusters.prod-eu]
"bootstrap.servers" = "kafka-1:9092,kafka-2:9092"
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "fenceline"
"sasl.password" = "env:PROD_PASSWORD"
"enable.ssl.certificate.verification" = true
"socket.timeout.ms" = 4000

[clusters.test]
"bootstrap.servers" = "localhost:9092"

[limits]
open_too_long_s = 10
"""
A = '[clusters.a]\n"bootstrap.servers" = "h:1"\n'


def read(tmp_path: Path, text: str | bytes, **env: str) -> Config:
    path = tmp_path / "fenceline.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(path, env)


def test_a_good_file_is_read_whole_and_its_secrets_are_hidden(tmp_path: Path) -> None:
    config = read(tmp_path, GOOD, PROD_PASSWORD="hunter2")
    assert list(config.clusters) == ["prod-eu", "test"]
    prod = config.clusters["prod-eu"]
    assert prod.bootstrap == "kafka-1:9092,kafka-2:9092"
    assert prod.properties["sasl.password"] == "hunter2"
    assert prod.properties["enable.ssl.certificate.verification"] == "true"
    assert prod.properties["socket.timeout.ms"] == "4000"
    assert config.limits == Limits(open_too_long_s=10)
    assert prod.redacted_properties()["sasl.password"] == "(hidden)"
    assert "hunter2" not in str(prod.redacted_properties())


def test_java_s_and_spark_s_names_are_taken_for_the_same(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        '[clusters.a]\n"kafka.bootstrap.servers" = "h:1"\n"kafka.security.protocol" = "SASL_SSL"\n'
        '"kafka.sasl.mechanism" = "SCRAM-SHA-512"\n"kafka.sasl.jaas.config" = "env:JAAS"\n',
        JAAS="kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required "
        "username='a' password='hunter2';",
    ).clusters["a"]
    assert config.bootstrap == "h:1"
    assert config.properties["sasl.password"] == "hunter2"
    assert "hunter2" not in str(config.redacted_properties())


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter3\n")
    text = f'[clusters.a]\n"bootstrap.servers" = "h:1"\n"sasl.password" = "file:{tmp_path / "password"}"\n'
    assert read(tmp_path, text).clusters["a"].properties["sasl.password"] == "hunter3"


def test_without_a_file_no_cluster_is_configured_and_a_missing_one_is_named(tmp_path: Path) -> None:
    assert load_config(None, {}) == Config()
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read"):
        load_config(tmp_path / "nowhere.toml", {})


#: An identity provider whose groups have no role.
P = (
    '[[identity_providers]]\nname = "corp"\nissuer = "https://id.example/id"\n'
    'client_id = "fenceline"\nclient_secret = "hush"\n'
)


#: An owner's and a root's tables, without what makes each a mistake.
T, R = '[[owners]]\nmatch = "p"\nteam = "t"\n', f'{A}[[checkpoints]]\nroot = "x"\n'


@cases(
    ("[clusters.a", "is not valid TOML"),
    (b"\xff\xfe", "is not UTF-8"),
    ('[cluster.a]\n"bootstrap.servers"="h:1"', "unknown key 'cluster'; did you mean 'clusters'?"),
    ("[wat]", "unknown key 'wat'; known are clusters, limits"),
    ("clusters = 3", "'clusters' must be a table"),
    ("[clusters]\na = 3", "'clusters.a' must be a table"),
    ("[clusters.a]", 'clusters.a lacks "bootstrap.servers"'),
    ('[clusters.a]\nbootstrap.servers = "h:1"', "quote dotted names"),
    ('[clusters.a]\n"bootstrap.servers" = ["h:1"]', "must be text or a number"),
    ('[clusters."a b"]\n"bootstrap.servers" = "h:1"', "is not a usable cluster name"),
    ('[clusters.a]\n"bootstrap.servers" = "env:NOWHERE"', "environment variable NOWHERE, which is not set"),
    ('[clusters.a]\n"bootstrap.servers" = "file:/no/such"', "cannot read /no/such"),
    ("[limits]\nopen_to_long_s = 3", "unknown key 'limits.open_to_long_s'; did you mean 'open_too_long_s'?"),
    (
        "[limits]\nrotations_per_day = 9",
        "'limits.rotations_per_day' was removed; delete it. The rule epoch_burn was removed: the page",
    ),
    ("[state_keys]", "'state_keys' was removed; delete it. Spark itself reads"),
    ("[limits]\nopen_too_long_s = 0", "limits.open_too_long_s must be a number of seconds above 0"),
    ('[limits]\nopen_too_long_s = "1m"', "must be a number of seconds above 0, not '1m'"),
    ("[limits]\nopen_too_long_s = true", "must be a number of seconds above 0"),
    ("[limits]\nopen_too_long_s = nan", "must be a number of seconds above 0"),
    ("[limits]\nabort_percent = 0", "limits.abort_percent must be a number above 0, not 0"),
    ("[limits]\nabort_percent = 1000000000", "limits.abort_percent must be a number above 0"),
    (f"[limits]\nabort_percent = {'9' * 5000}", "is not valid TOML"),
    ("[limits]\ngroups_every_s = -1", "limits.groups_every_s must be a number of seconds, 0 or more, not -1"),
    ("limits = 3", "'limits' must be a table; write [limits]."),
    ("[retention]\nminutes_d = true", "retention.minutes_d must be a number of days above 0, not True"),
    ("clusters = 3", "write [clusters.NAME]."),
    ('[clusters."a\\nb"]', r"'clusters.a\nb' is not a usable cluster name"),
    ('"a\\nb" = 1', r"unknown key 'a\nb'"),
    (f'{A}"sasl.password" = "file:\\u0000"', 'clusters.a."sasl.password": cannot read'),
    (f'{A}"security.protocol" = "tls"', "clusters.a.\"security.protocol\" is 'tls': known are PLAINTEXT"),
    (f'{A}"security.protocol" = "sasl_ssl"', 'clusters.a."sasl.mechanism" is missing: known are PLAIN'),
    (
        f'{A}"security.protocol" = "sasl_ssl"\n"sasl.mechanism" = "DIGEST-MD5"',
        "clusters.a.\"sasl.mechanism\" is 'DIGEST-MD5': known are PLAIN",
    ),
    (f'{A}"sasl.jaas.config" = "x"', 'clusters.a."sasl.jaas.config" is no `module required'),
    (f"{A}sees_all_transactional_ids = 1", "clusters.a.sees_all_transactional_ids must be true or false"),
    (f"{A}read_only = 'yes'", "clusters.a.read_only must be true or false, not 'yes'"),
    ("[clusters.a]\nscope = 3", "'clusters.a.scope' must be a table; write [clusters.a.scope]."),
    (f"{A}[clusters.a.scope]\ntopic = ['x']", "unknown key 'clusters.a.scope.topic'; did you mean 'topics'?"),
    (f"{A}[clusters.a.scope]\ntopics = []", "clusters.a.scope.topics must be a list of names, or of"),
    (f"{A}[clusters.a.scope]\ntopics = 'x'", "beginnings such as \"orders-*\", not 'x'"),
    (f"{A}[clusters.a.scope]\ngroups = ['a*b']", "clusters.a.scope.groups must be a list of names"),
    ("[owners]", "'owners' must be a list of tables; write [[owners]]"),
    ("owners = [3]", "owners[1] must be a table; write [[owners]]"),
    ('[[owners]]\nmatchh = "p"\nteam = "t"', "unknown key 'owners[1].matchh'; did you mean 'match'?"),
    ('[[owners]]\nmatch = "p"', 'owners[1] needs both: match = "payments-*" and team = "…"'),
    ('[[owners]]\nmatch = "p"\nteam = 3', "owners[1].team must be text, not 3"),
    (f'{T}application = "{"x" * 201}"', "owners[1].application must be up to 200 printable characters"),
    (f'{T}runbook = "ftp://r"', "owners[1].runbook must begin with https:// or http://, not 'ftp://r'"),
    (f'{R}kind = "beam"', """checkpoints[1].kind must be "spark" or "flink", not 'beam'"""),
    (f"{R}kind = 3", "checkpoints[1].kind must be"),
    (f'{R}rest = "http://jm:8081"', "checkpoints[1].rest is of Flink"),
    (
        f'{R}kind = "flink"\nrest = "jm:8081"',
        "checkpoints[1].rest must begin with http:// or https://, not 'jm:8081'",
    ),
    (f"{A}[[connect]]", "connect[1].url must begin with http:// or https://, not None"),
    (f"connect = 3\n{A}", "'connect' must be a list of tables; write [[connect]]"),
    (f'{A}[[connect]]\nurl = "http://u:p@w:1"', "connect[1].url has credentials: put them into headers"),
    (f'{A}[[connect]]\nurl = "http://w:x"', "connect[1].url: Port could not be cast"),
    (f'{A}[[connect]]\nurl = "http://w/?a=1"', "connect[1].url must be a host and a path alone"),
    (f'{A}[[connect]]\nurl = "http://w"\ngroups = "g"', "did you mean 'group'?"),
    (f'{A}[[connect]]\nurl = "http://w"\ngroup = 3', "connect[1].group must be text, not 3"),
    (f'{A}[[connect]]\nurl = "http://w"\ncluster = "b"', "connect[1].cluster must name a cluster (a)"),
    (f"{A}[[checkpoints]]", "checkpoints[1] lacks root; set it to the folder"),
    ('[[checkpoints]]\nroot = "x"', "checkpoints[1].cluster must name a cluster (none), not ''"),
    (f'{R}cluster = "b"', "checkpoints[1].cluster must name a cluster (a), not 'b'"),
    (
        f"{R}map = 3",
        'checkpoints[1].map must be a table; write map = { "a" = "b" }',
    ),
    (f"{P}issuers = 1", "unknown key 'identity_providers[1].issuers'; did you mean 'issuer'"),
    ('[[identity_providers]]\nname = "a"', "identity_providers[1] lacks issuer, client_id, client_secret"),
    (P.replace('"corp"', '"A b"'), "identity_providers[1].name must have lower-case letters"),
    (P.replace("https:", "http:"), "identity_providers[1].issuer must be an https:// address"),
    (P.replace("/id", "/id?a=b"), "identity_providers[1].issuer must be an https:// address"),
    (P, "identity_providers[1] gives nobody a role"),
    (f'{P}viewer = "staff"', "identity_providers[1].viewer must be a list of groups"),
    (f'{P}viewer = ["a"]\nsession_h = 0', "session_h must be a number from 1 to 744, not 0"),
    (f'{P}viewer = ["a"]\n' * 2, "two identity_providers are called 'corp'"),
    (f'{P}viewer = ["a"]\nclusters = ["a"]', "identity_providers[1].clusters must be a table"),
    (f'{P}viewer = ["a"]\nclusters = {{ a = "prod" }}', '.clusters."a" must be a list of clusters'),
    (f'{P}viewer = ["a"]\nclusters = {{ a = ["prod=chief"] }}', "\"a\": 'prod=chief' is none of CLUSTER"),
    (f'{P}viewer = ["a"]\nclusters = {{ a = ["*=admin"] }}', "\"a\": '*=admin' is none of CLUSTER"),
    (P.replace("hush", "env:NO_SUCH"), "asks for the environment variable NO_SUCH, which is not set"),
    ('[sign_in_proxy]\naddresses = ["::1"]', "sign_in_proxy gives nobody a role"),
    ('[sign_in_proxy]\nviewer = ["a"]', "sign_in_proxy.addresses must name where the proxy is"),
    ('[sign_in_proxy]\nviewer = ["a"]\naddresses = ["10.1.2.3/8"]', "has host bits set"),
    ('[sign_in_proxy]\nviewer = ["a"]\nuser = "X User"', "must be the name of a header, not 'X User'"),
    ("[actions]\nsecond_person = 3", "actions.second_person must be a list of fence"),
    ('[actions]\nsecond_person = ["fense"]', "not ['fense']"),
    ("[actions]\nsecond = 3", "did you mean 'second_person'?"),
    ("[history]\nurl = 3", "history.url must be text, not 3"),
    ("[audit]\nurl = 3", "audit.url must be text, not 3"),
    ("[audit]\nurls = 3", "unknown key 'audit.urls'; did you mean 'url'?"),
    ("[alerts]\nfor_ticks = 2.0", "alerts.for_ticks must be a whole number, 0 or more, not 2.0"),
    ("[alerts]\nflap_s = -1", "alerts.flap_s must be a number of seconds, 0 or more, not -1"),
    ('[alerts]\ngroup_by = "a"', """alerts.group_by must be a list of texts, ["a", "b"], not 'a'"""),
    ('[alerts]\nexternal_url = "x"', "alerts.external_url must begin with https:// or http://, not 'x'"),
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert says in str(refused.value)
    assert str(tmp_path / "fenceline.toml") in str(refused.value)
    assert "\n" not in str(refused.value)


@cases(
    f'{A}"sasl.password" = ["hunter2"]',
    f'{A}"sasl.password" = {{ a = "hunter2" }}',
    f'{R}options = "hunter2"',
    f'{R}options = {{ secret = ["hunter2"] }}',
)
def test_an_error_contains_no_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


def test_numbers_and_lists_get_the_types_of_their_defaults(tmp_path: Path) -> None:
    text = (
        "[limits]\nreconcile_every_s = 0\n[alerts]\nflap_s = 1\ngroup_by = ['a']\nexternal_url = 'https://x/'"
    )
    config = read(tmp_path, text)
    assert config.limits == Limits(reconcile_every_s=0)
    assert config.alerts == Alerting(flap_s=1.0, group_by=("a",), external_url="https://x")


def test_the_only_cluster_need_not_be_named_and_roots_of_flink_are_kept_apart(tmp_path: Path) -> None:
    text = f'{A}[[checkpoints]]\nroot = "s3a://b"\noptions = {{ key = "env:KEY", ssl = true }}\n'
    kinds = (f'[[checkpoints]]\nroot = "s3://{kind}"\nkind = "{kind}"\n' for kind in ("flink", "spark"))
    config = read(tmp_path, text + "".join(kinds), KEY="k")
    assert config.checkpoints[0] == CheckpointRoot("s3a://b", "a", options={"key": "k", "ssl": "true"})
    assert [root.root for root in config.flink_checkpoints] == ["s3://flink"]
    assert [root.root for root in config.checkpoints] == ["s3a://b", "s3://spark"]


def test_rest_apis_are_read_with_their_headers_each_once(tmp_path: Path) -> None:
    text = (
        '[clusters.a]\n"bootstrap.servers" = "h:1"\n'
        '[[checkpoints]]\nkind = "flink"\nroot = "/x"\nrest = "http://jm:8081/"\n'
        'rest_headers = { Authorization = "env:AUTH" }\n'
        '[[checkpoints]]\nkind = "flink"\nroot = "/y"\nrest = "http://jm:8081"\n'
        'rest_headers = { Authorization = "env:AUTH" }\n'
        '[[connect]]\nurl = "https://w/base"\ngroup = "cdc"\n'
    )
    manager, worker = read(tmp_path, text, AUTH="Basic abc").engines
    assert (manager.kind, manager.url, manager.cluster) == (EngineKind.FLINK, "http://jm:8081", "a")
    assert manager.headers == {"Authorization": "Basic abc"}
    assert (worker.kind, worker.url, worker.group) == (EngineKind.CONNECT, "https://w/base", "cdc")


def test_identity_providers_are_read_with_their_roles(tmp_path: Path) -> None:
    text = f'{P}admin = ["leads"]\nviewer = ["staff", "guests"]\nlabel = "Corp"\n'
    text += 'clusters = { staff = ["prod"] }\n'
    (provider,) = read(tmp_path, text.replace('"hush"', '"env:HUSH"'), HUSH="secret").identity_providers
    assert (provider.label, provider.client_secret) == ("Corp", "secret")
    assert provider.clusters == (("staff", ("prod",)),)
    assert provider.roles == (("staff", "viewer"), ("guests", "viewer"), ("leads", "admin"))


def test_a_scope_and_read_only_are_read_and_shown(tmp_path: Path) -> None:
    text = f"""{A}read_only = true
[clusters.a.scope]
topics = ["orders", "pay-*"]
transactional_ids = ["pay-*"]
"""
    cluster = read(tmp_path, text).clusters["a"]
    assert cluster.scope == Scope(topics=("orders", "pay-*"), transactional_ids=("pay-*",))
    shown = cluster.redacted_properties()
    assert (shown["scope"], shown["read_only"]) == ("topics orders, pay-*; transactional ids pay-*", "true")
    plain = read(tmp_path, A).clusters["a"].redacted_properties()
    assert plain.keys() == {"bootstrap.servers"}


def test_a_secret_s_file_is_its_value_and_without_one_the_variable_is(tmp_path: Path) -> None:
    for name in SECRETS:
        (tmp_path / name).write_text(f" {name} value\r\n")
    given = {f"{name}_FILE": str(tmp_path / name) for name in SECRETS}
    found = with_secrets(given)
    assert {name: found[name] for name in SECRETS} == {name: f" {name} value" for name in SECRETS}
    assert read_secret({"SECRET_KEY": "a", "SECRET_KEY_FILE": ""}, "SECRET_KEY") == "a"
    assert read_secret({}, "SECRET_KEY") == ""


@cases(
    (b"a", "b", r"SECRET_KEY and SECRET_KEY_FILE are both set: keep one of them\."),
    (None, "", r"SECRET_KEY_FILE=\S+: No such file or directory\. Name a file that this process, user \d+"),
    (b"\n", "", r"SECRET_KEY_FILE=\S+: the file is empty\. Write the secret into it\."),
    (b"\xff\xfe", "", r"SECRET_KEY_FILE=\S+: is not text in UTF-8\."),
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


def test_a_mistake_ends_the_start_in_one_line_and_the_docs_name_every_secret() -> None:
    refused = settings("1", SECRET_KEY="a", SECRET_KEY_FILE="/nonexistent")
    assert refused.stderr == "fenceline: SECRET_KEY and SECRET_KEY_FILE are both set: keep one of them.\n"
    text = (ROOT / "docs" / "deploying.md").read_text()
    assert set(re.findall(r"`(\w+)_FILE`", text)) - {"CA"} == set(SECRETS)
