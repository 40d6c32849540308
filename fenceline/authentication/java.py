"""Translate Java's and Spark's connection options to librdkafka's; it opens no file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fenceline.authentication.mechanisms import MECHANISMS, TOKEN_CALLBACK, BadOption, Properties

#: Translates an option's value; raises `BadOption`.
Translate = Callable[[str], Mapping[str, str]]
#: Spark's prefix of Kafka options.
PREFIX = "kafka."

_QUOTED = r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'"
_PAIR = re.compile(rf"([\w.]+)\s*=\s*(?:{_QUOTED}|([^\s\"';]+))")
_LOGIN = re.compile(rf"\s*([\w.]+)\s+required\b((?:{_QUOTED}|[^;\"'])*);?\s*", re.DOTALL)
#: Both packages in which Kafka has had it.
_OIDC_HANDLER = re.compile(r"(kafkashaded\.)?org\.apache\.kafka\..*\.OAuthBearerLoginCallbackHandler")
_IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
#: Java's class that fetches tokens -> the grant that it requests (KIP-1139).
_RETRIEVERS = {
    "ClientCredentialsJwtRetriever": "client_credentials",
    "JwtBearerJwtRetriever": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}


def same_value(name: str) -> Translate:
    """Return the translation for an option that only changes its name."""
    return lambda value: {name: value}


def only_value(*allowed: str, because: str) -> Translate:
    """Return the translation of a value that must equal librdkafka's behaviour."""

    def check(value: str) -> Mapping[str, str]:
        if value.lower() not in allowed:
            raise BadOption(f"is {value!r}: {because}")
        return {}

    return check


def never_taken(reason: str) -> Translate:
    """Return the translation of an option that is always refused."""

    def refuse(value: str) -> Mapping[str, str]:
        raise BadOption(reason)

    return refuse


def _jaas(value: str) -> Mapping[str, str]:
    match = _LOGIN.fullmatch(value)
    if match is None:
        raise BadOption('is no `module required name="value" …;`')
    # A shaded module (kafkashaded.org.apache.kafka…) is the same module.
    module = match[1].rsplit(".", 1)[-1]
    mechanism = next((mechanism for mechanism in MECHANISMS.values() if mechanism.module == module), None)
    if mechanism is None:
        known = dict.fromkeys(mechanism.module for mechanism in MECHANISMS.values())
        raise BadOption(f"names {module}: known are {', '.join(known)}")
    return mechanism.login({name: _unquoted(*values) for name, *values in _PAIR.findall(match[2])})


def _unquoted(double: str, single: str, plain: str) -> str:
    return plain or re.sub(r"\\(.)", r"\1", double or single)


def _login_handler(value: str) -> Mapping[str, str]:
    if _OIDC_HANDLER.fullmatch(value):
        return {"sasl.oauthbearer.method": "oidc"}
    raise BadOption(f'is code of Java: name a Python function that returns tokens, "{TOKEN_CALLBACK}"')


def _retriever(value: str) -> Mapping[str, str]:
    if (how := _RETRIEVERS.get(value.rpartition(".")[2])) is None:
        raise BadOption(f'is code of Java: name a Python function that returns tokens, "{TOKEN_CALLBACK}"')
    return {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.grant.type": how}


def _client_handler(value: str) -> Mapping[str, str]:
    if value != _IAM_HANDLER:
        raise BadOption("is code of Java: no like in librdkafka, remove it")
    return {}


def _kinit(value: str) -> Mapping[str, str]:
    if " " not in value.strip():
        raise BadOption("is a program in Java and a whole command line in librdkafka: remove it")
    return {"sasl.kerberos.kinit.cmd": value}


def _ciphers(value: str) -> Mapping[str, str]:
    if "_WITH_" in value:
        raise BadOption(
            "has Java's names: librdkafka takes OpenSSL's, separated by colons (`openssl ciphers`)"
        )
    return {"ssl.cipher.suites": value.replace(",", ":")}


def _versions(value: str) -> Mapping[str, str]:
    if {item.strip() for item in value.split(",")} != {"TLSv1.2", "TLSv1.3"}:
        raise BadOption("has no like in librdkafka, which takes TLSv1.2 and TLSv1.3: remove it")
    return {}


_SAME = (
    "bootstrap.servers", "client.dns.lookup", "client.id", "connections.max.idle.ms", "enable.metrics.push",
    "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name", "sasl.mechanism", "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url",
    "socket.connection.setup.timeout.ms", "ssl.key.password",
)  # fmt: skip
#: librdkafka's own names, and one of ours.
_LIBRDKAFKAS = (
    TOKEN_CALLBACK, "broker.address.family", "enable.ssl.certificate.verification", "https.ca.location",
    "https.ca.pem", "sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.mechanisms",
    "sasl.oauthbearer.assertion.claim.aud", "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.grant.type", "sasl.oauthbearer.metadata.authentication.type",
    "sasl.oauthbearer.method", "sasl.oauthbearer.scope", "sasl.password", "sasl.username",
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.crl.location",
    "ssl.key.location", "ssl.key.pem", "ssl.sigalgs.list", "ssl.curves.list",
)  # fmt: skip
#: Left unchanged until `resolve_stores` has all of them.
STORE_KEYS = tuple(
    f"ssl.{which}store.{what}" for which in ("trust", "key") for what in ("location", "password", "type")
)

#: Other options of authentication, in librdkafka's names.
SIGN_IN = frozenset(
    name
    for name in (*_SAME, *_LIBRDKAFKAS, "sasl.kerberos.kinit.cmd")
    if name.startswith(("sasl.", "https."))
)

#: Java's names of connection options -> their translation.
CONNECTION: Mapping[str, Translate] = {
    **{name: same_value(name) for name in (*_SAME, *_LIBRDKAFKAS, *STORE_KEYS)},
    "security.protocol": lambda value: {"security.protocol": value.lower()},
    "sasl.client.callback.handler.class": _client_handler,
    "sasl.jaas.config": _jaas,
    "sasl.login.callback.handler.class": _login_handler,
    "sasl.oauthbearer.client.credentials.client.id": same_value("sasl.oauthbearer.client.id"),
    "sasl.oauthbearer.client.credentials.client.secret": same_value("sasl.oauthbearer.client.secret"),
    "sasl.oauthbearer.assertion.template.file": same_value("sasl.oauthbearer.assertion.jwt.template.file"),
    "sasl.oauthbearer.jwt.retriever.class": _retriever,
    "sasl.kerberos.kinit.cmd": _kinit,
    "ssl.cipher.suites": _ciphers,
    "ssl.enabled.protocols": _versions,
    "ssl.endpoint.identification.algorithm": lambda value: {
        "ssl.endpoint.identification.algorithm": value.lower() or "none"
    },
    "ssl.keystore.certificate.chain": same_value("ssl.certificate.pem"),
    "ssl.keystore.key": same_value("ssl.key.pem"),
    "ssl.protocol": only_value("tls", "tlsv1.2", "tlsv1.3", because="librdkafka takes TLSv1.2 and TLSv1.3"),
    "ssl.truststore.certificates": same_value("ssl.ca.pem"),
}  # fmt: skip


def resolve_stores(properties: Properties) -> dict[str, str]:
    """Resolve the types of stores: PEM files get librdkafka's names, other stores stay.

    The file shows whether a store is PKCS12 or Java's own, as in Java, whose default accepts both.
    """
    rest = {key: value for key, value in properties.items() if not key.endswith("store.type")}
    for which, as_pem in (
        ("trust", ("ssl.ca.location",)),
        ("key", ("ssl.certificate.location", "ssl.key.location")),
    ):
        if properties.get(f"ssl.{which}store.type", "").upper() == "PEM":
            rest.pop(f"ssl.{which}store.password", None)
            if where := rest.pop(f"ssl.{which}store.location", ""):
                rest |= dict.fromkeys(as_pem, where)
    return rest


def translate_properties(options: Properties) -> tuple[dict[str, str], dict[str, str]]:
    """Return properties in librdkafka's names, and why options are refused, by their own names.

    Names may have Spark's prefix. Other options than connection options stay unchanged.
    """
    properties: dict[str, str] = {}
    refused: dict[str, str] = {}
    for key, value in options.items():
        name = key.removeprefix(PREFIX)
        try:
            properties.update(CONNECTION.get(name, same_value(name))(value))
        except BadOption as error:
            refused[key] = str(error)
    return resolve_stores(properties), refused
