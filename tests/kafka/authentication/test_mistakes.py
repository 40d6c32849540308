"""Proves that a sign-in that cannot work is reported in one sentence, with the key and no secret: by the
doctor, by the admin side, and by the sink before its first batch."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from collectors.doctor.examination import CheckStatus
from sandbox.ports import free_port
from spark_pipeline.exactly_once import Stopped, require_topics
from spark_pipeline.exactly_once_arguments import Arguments
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.factory import chosen_timeout_ms, make_options
from tests.identity_provider import IdentityProvider
from tests.kafka.authentication import callbacks
from tests.kafka.authentication.conftest import TOPIC
from tests.kafka.doctor_checks import run_doctor
from tests.receivers import Authority
from tests.secured import PASSWORD, Secured
from transaction_admin.api import AdminUnavailable
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.properties import CannotTranslate

pytestmark = pytest.mark.kafka

Spoil = Callable[[Secured, Path], Mapping[str, str]]


def _java_store(broker: Secured, folder: Path) -> Mapping[str, str]:
    where = folder / "own.jks"
    broker.keytool(
        "-importcert", "-noprompt", "-alias", "ca", "-file", str(broker.by_certificate()["ssl.ca.location"]),
        "-keystore", str(where), "-storetype", "JKS", "-storepass", "changeit",
    )  # fmt: skip
    return broker.by_store() | {"ssl.truststore.location": str(where)}


def _other_authority(broker: Secured, folder: Path) -> Mapping[str, str]:
    return broker.by_certificate() | {"ssl.ca.location": str(Authority(folder).certificate)}


def _without_certificate(broker: Secured, folder: Path) -> Mapping[str, str]:
    own = ("ssl.certificate.location", "ssl.key.location")
    return {key: value for key, value in broker.by_certificate().items() if key not in own}


def _named(function: str) -> Spoil:
    return lambda broker, _: broker.by_callback(f"{callbacks.__name__}:{function}")


#: mistake -> the properties, and what the sentence has.
MISTAKES: Mapping[str, tuple[Spoil, str]] = {
    "password": (
        lambda broker, _: broker.by_password("PLAIN") | {"sasl.password": "wrong"},
        '"sasl.password"',
    ),
    "client's secret": (
        lambda broker, _: broker.by_token() | {"sasl.oauthbearer.client.secret": "wrong"},
        "invalid_client",
    ),
    "endpoint gone": (
        lambda broker, _: (
            broker.by_token()
            | {"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{free_port()}/token"}
        ),
        "http://127.0.0.1:",
    ),
    "expired token": (_named("expired"), "expired returned a token that has expired"),
    "token refused": (_named("lying"), '"sasl.oauthbearer.token.callback"'),
    "callback raises": (_named("raising"), "raising raised RuntimeError: the vault is sealed"),
    "callback without token": (_named("odd"), "odd returned a str, not (token, seconds since 1970"),
    "no callback": (_named("missing"), "cannot be imported here (AttributeError"),
    "callback is text": (_named("NO_FUNCTION"), "NO_FUNCTION is a str, no function"),
    "no module": (
        lambda broker, _: broker.by_callback("no.such.module:token"),
        "cannot be imported here (ModuleNotFoundError",
    ),
    "another authority": (_other_authority, "TLS"),
    "no certificate": (_without_certificate, "TLS"),
    "Java's store": (_java_store, "keytool -importkeystore -srckeystore"),
    "store's password": (
        lambda broker, _: broker.by_store() | {"ssl.truststore.password": "wrong"},
        "does not open as PKCS12",
    ),
    "mechanism": (lambda broker, _: broker.by_password("NTLM"), "is 'NTLM': known are PLAIN"),
}
#: What kafka/test_doctor_mistakes.py has in the gate.
ELSEWHERE = ("password",)


#: What librdkafka reports in other words.
LIBRDKAFKAS = {"no certificate": "bad certificate"}


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.matrix) if name in ELSEWHERE else name for name in MISTAKES]
)
def mistake(
    request: pytest.FixtureRequest, secured: Secured, provider: IdentityProvider, tmp_path: Path
) -> tuple[str, Mapping[str, str], str]:
    callbacks.PROVIDERS[:] = [provider]
    spoil, said = MISTAKES[request.param]
    return request.param, spoil(secured, tmp_path), said


def test_it_is_one_sentence_everywhere(mistake: tuple[str, Mapping[str, str], str]) -> None:
    _, properties, said = mistake
    with (
        pytest.raises((AdminUnavailable, CannotTranslate)) as admin,
        closing(TransactionAdmin(properties, 2)),
    ):
        pass
    with pytest.raises(SinkError) as sink:
        _start_sink(properties)
    failed = {
        each.what: each.detail
        for each in run_doctor(properties, timeout_s=2)
        if each.status is CheckStatus.FAIL
    }
    for text in str(admin.value), str(sink.value):
        assert said in text
        assert "\n" not in text
        _hides_secrets(text)
    assert any(said in text for text in failed.values())
    _hides_secrets(str(failed))


def _start_sink(properties: Mapping[str, str]) -> None:
    """Do what the sink does before a batch."""
    kafka = {f"kafka.{key}": value for key, value in properties.items()}
    chosen_timeout_ms(make_options(kafka))


def _hides_secrets(text: str) -> None:
    for secret in (PASSWORD, "rightful", "changeit", "wrong"):
        assert secret not in text


@pytest.mark.parametrize("name", ["client's secret", "no certificate", "no module"])
def test_the_job_reports_it_before_spark_begins(
    secured: Secured, provider: IdentityProvider, tmp_path: Path, name: str
) -> None:
    kafka = MISTAKES[name][0](secured, tmp_path)
    chosen = Arguments(kafka=kafka, source=TOPIC, target=TOPIC, checkpoint="/x", name="x", prefix="x")
    with pytest.raises((Stopped, SinkError)) as stopped:
        require_topics(chosen, timeout_s=2)
    assert LIBRDKAFKAS.get(name, MISTAKES[name][1]) in str(stopped.value)
    assert "\n" not in str(stopped.value)
    _hides_secrets(str(stopped.value))
