"""Proves how Amazon's IAM is spoken, short of Amazon's own brokers: librdkafka sends the token that AWS's
signer makes of the environment's credentials, kafka-python asks for AWS_MSK_IAM and signs with the same."""

import base64
import json
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qs, urlsplit

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from kafka.net.sasl import get_sasl_mechanism

from tests.cases import cases
from tests.kafka.doctor_checks import run_doctor
from tests.secured import Secured
from tests.waiting import wait_for
from transaction_admin.api import AdminUnavailable
from transaction_admin.authentication.librdkafka import librdkafka_settings
from transaction_admin.authentication.tokens import forget_tokens
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.properties import CannotTranslate, kafka_python

pytestmark = pytest.mark.kafka

KEY, SECRET, REGION = "AKIDEXAMPLE", "fixed-secret", "eu-west-1"


@pytest.fixture
def properties(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    forget_tokens()
    yield secured.by_cloud()
    forget_tokens()


def signed_at(token: str) -> Mapping[str, list[str]]:
    """Return what a token says: it is a signed address."""
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert urlsplit(url).hostname == f"kafka.{REGION}.amazonaws.com"
    return parse_qs(urlsplit(url).query)


def test_librdkafka_gets_the_token_that_aws_s_signer_makes(properties: Mapping[str, str]) -> None:
    def made_in_one_second() -> bool:
        forget_tokens()
        settings = librdkafka_settings(properties)
        assert settings["sasl.mechanism"] == "OAUTHBEARER"
        token, expires, *_ = settings["oauth_cb"]("")
        expected, expires_ms = MSKAuthTokenProvider.generate_auth_token(REGION)
        said = signed_at(token)
        assert said["Action"] == ["kafka-cluster:Connect"]
        assert said["X-Amz-Credential"][0].startswith(f"{KEY}/")
        return (token, expires) == (expected, expires_ms / 1_000)

    wait_for(made_in_one_second, "both are of the same second, so they are the same")


def test_kafka_python_signs_by_its_own_mechanism(properties: Mapping[str, str]) -> None:
    settings = kafka_python(properties)
    assert settings["sasl_mechanism"] == "AWS_MSK_IAM"
    mechanism = get_sasl_mechanism("AWS_MSK_IAM")(host="b-1.example", **settings)
    said = json.loads(mechanism.auth_bytes())
    assert said["x-amz-credential"].startswith(f"{KEY}/")
    assert f"/{REGION}/kafka-cluster/" in said["x-amz-credential"]
    assert said["action"] == "kafka-cluster:Connect"


def test_both_go_over_the_wire_to_a_broker_that_is_not_amazon_s(properties: Mapping[str, str]) -> None:
    # It hangs up right behind its answer, which may or may not be read.
    with pytest.raises(AdminUnavailable, match=r"during the sign-in: check|does not take this"):
        TransactionAdmin(properties, 5)
    checks = {each.what: each.detail for each in run_doctor(properties, timeout_s=2)}
    assert "sasl.mechanism" in checks["sign-in"]
    assert SECRET not in str(checks)


@cases(
    (("AWS_DEFAULT_REGION",), "set AWS_DEFAULT_REGION"),
    (("AWS_ACCESS_KEY_ID",), "AWS has no credentials: set AWS_PROFILE"),
)
def test_what_the_environment_lacks_is_named(
    properties: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, gone: tuple[str, ...], said: str
) -> None:
    for name in gone:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(CannotTranslate, match=said):
        kafka_python(properties)
