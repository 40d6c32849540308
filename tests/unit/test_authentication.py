"""Proves that each mechanism's spellings (Java's, Spark's, librdkafka's) become the same properties, and that
what cannot be taken is refused by its key."""

from collections.abc import Mapping

import pytest

from fenceline.authentication.java import translate_properties
from fenceline.authentication.mechanisms import MECHANISMS, explain_refusal, find_mistakes
from tests.cases import cases

KAFKA = "org.apache.kafka.common.security"
BEARER = f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "OAuthBearerLoginCallbackHandler"
IAM = "software.amazon.msk.auth.iam.IAM"
SASL = {"security.protocol": "sasl_ssl", "bootstrap.servers": "h:1"}
PLAIN = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}


@cases(
    (
        {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"{KAFKA}.plain.PlainLoginModule required username=a password='b;c';",
        },
        {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b;c"},
    ),
    (
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{BEARER} clientId="a" clientSecret="b" scope="c" '
            "extension_x=1 extension_y=2;",
            "sasl.login.callback.handler.class": f"{KAFKA}.oauthbearer.secured.{HANDLER}",
            "sasl.oauthbearer.token.endpoint.url": "https://id/token",
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "a",
            "sasl.oauthbearer.client.secret": "b",
            "sasl.oauthbearer.scope": "c",
            "sasl.oauthbearer.extensions": "x=1,y=2",
            "sasl.oauthbearer.token.endpoint.url": "https://id/token",
        },
    ),
    (
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{BEARER};",
            "sasl.login.callback.handler.class": f"kafkashaded.{KAFKA}.oauthbearer.{HANDLER}",
            "sasl.oauthbearer.client.credentials.client.id": "a",
            "sasl.oauthbearer.client.credentials.client.secret": "b",
            "sasl.oauthbearer.token.endpoint.url": "https://id/token",
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "a",
            "sasl.oauthbearer.client.secret": "b",
            "sasl.oauthbearer.token.endpoint.url": "https://id/token",
        },
    ),
    (
        {
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
            'storeKey=true keyTab="/etc/a.keytab" principal="a@REALM";',
        },
        {
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.keytab": "/etc/a.keytab",
            "sasl.kerberos.principal": "a@REALM",
        },
    ),
    (
        {
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f"{IAM}LoginModule required;",
            "sasl.client.callback.handler.class": f"{IAM}ClientCallbackHandler",
        },
        {"sasl.mechanism": "AWS_MSK_IAM"},
    ),
    (
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": "k",
            "ssl.keystore.certificate.chain": "c",
            "ssl.truststore.certificates": "a",
            "ssl.truststore.type": "PEM",
            "ssl.enabled.protocols": "TLSv1.3,TLSv1.2",
            "ssl.protocol": "TLSv1.3",
            **PLAIN,
        },
        {
            "ssl.key.pem": "k",
            "ssl.certificate.pem": "c",
            "ssl.ca.pem": "a",
            **PLAIN,
        },
    ),
    (
        {
            "ssl.keystore.location": "/a.p12",
            "ssl.keystore.password": "p",
            "ssl.keystore.type": "PKCS12",
            "ssl.truststore.location": "/b.pem",
            "ssl.truststore.type": "PEM",
            **PLAIN,
        },
        {
            "ssl.keystore.location": "/a.p12",
            "ssl.keystore.password": "p",
            "ssl.ca.location": "/b.pem",
            **PLAIN,
        },
    ),
)
@pytest.mark.parametrize("prefix", ["", "kafka."])
def test_java_s_spelling_becomes_librdkafka_s_and_is_complete(
    prefix: str, given: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    shaded = {
        key: value.replace(f"{KAFKA}.plain", f"kafkashaded.{KAFKA}.plain") for key, value in given.items()
    }
    found, refused = translate_properties(SASL | {prefix + key: value for key, value in shaded.items()})
    assert (found, refused) == (SASL | expected, {})
    assert find_mistakes(found) == {}
    # Whose names they are already are left alone.
    assert translate_properties(found) == (found, {})


@cases(
    ("sasl.jaas.config", "nonsense", "module required"),
    (
        "sasl.jaas.config",
        "a.DigestLoginModule required;",
        "names DigestLoginModule: known are PlainLoginModule",
    ),
    ("sasl.jaas.config", f"{KAFKA}.plain.PlainLoginModule required username=a;", "has no password"),
    ("sasl.jaas.config", f"{BEARER} unsecuredLoginStringClaim_sub=a;", "sasl.oauthbearer.token.callback"),
    ("sasl.jaas.config", f"{BEARER} ssl.protocol=TLS;", "has ssl.protocol, which has no like"),
    ("sasl.jaas.config", f"{IAM}LoginModule required awsRoleArn=x;", "AWS_ROLE_ARN"),
    ("sasl.login.callback.handler.class", "com.example.Mine", "a Python function that returns tokens"),
    ("sasl.oauthbearer.jwt.retriever.class", "com.example.Mine", "a Python function that returns tokens"),
    ("sasl.client.callback.handler.class", "com.example.Mine", "code of Java"),
    ("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", "a whole command line in librdkafka"),
    ("ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "openssl ciphers"),
    ("ssl.enabled.protocols", "TLSv1.3", "which takes TLSv1.2 and TLSv1.3"),
    ("ssl.protocol", "SSLv3", "librdkafka takes TLSv1.2"),
)
def test_what_has_no_like_is_refused_by_its_own_name(key: str, value: str, reason: str) -> None:
    for name in key, f"kafka.{key}":
        _, refused = translate_properties({name: value})
        assert list(refused) == [name]
        assert reason in refused[name]


TOKENS = {"sasl.mechanism": "OAUTHBEARER"}
OIDC = TOKENS | {"sasl.oauthbearer.method": "oidc"}


@cases(
    ({"security.protocol": "tls"}, "security.protocol", "is 'tls': known are PLAINTEXT, SSL"),
    ({}, "sasl.mechanism", f"is missing: known are {', '.join(MECHANISMS)}"),
    ({"sasl.mechanisms": "NTLM"}, "sasl.mechanism", "is 'NTLM': known are"),
    ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.password", "is missing"),
    (TOKENS, "sasl.oauthbearer.method", "where do tokens come from?"),
    (OIDC, "sasl.oauthbearer.token.endpoint.url", "is missing"),
    (
        TOKENS | {"sasl.oauthbearer.token.callback": "a.b.c"},
        "sasl.oauthbearer.token.callback",
        "is 'a.b.c': write it as package.module:function",
    ),
    (
        {"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "sasl_plaintext"},
        "security.protocol",
        "must be SASL_SSL",
    ),
)
def test_what_is_missing_or_wrong_is_named(properties: Mapping[str, str], key: str, reason: str) -> None:
    found = find_mistakes(SASL | properties)
    assert key in found
    assert reason in found[key]


def test_a_signed_assertion_is_a_grant_of_librdkafka_s() -> None:
    given = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.jwt.retriever.class": f"{KAFKA}.oauthbearer.JwtBearerJwtRetriever",
        "sasl.oauthbearer.assertion.template.file": "/a.json",
    }
    found, refused = translate_properties(SASL | given)
    assert (found["sasl.oauthbearer.method"], refused, find_mistakes(found)) == ("oidc", {}, {})
    assert found["sasl.oauthbearer.grant.type"].endswith("jwt-bearer")
    assert found["sasl.oauthbearer.assertion.jwt.template.file"] == "/a.json"


def test_without_sasl_nothing_is_needed() -> None:
    assert find_mistakes({"bootstrap.servers": "h:1"}) == {}
    assert find_mistakes({"security.protocol": "ssl", "sasl.mechanism": "NTLM"}) == {}


def test_a_librdkafka_without_a_mechanism_is_reported_with_what_to_do() -> None:
    reported = (
        "Failed to create producer: No provider for SASL mechanism GSSAPI: recompile librdkafka with libsasl2"
    )
    assert "GSSAPI, which this librdkafka was built without" in explain_refusal(reported)
    assert explain_refusal("anything else") == "anything else"
