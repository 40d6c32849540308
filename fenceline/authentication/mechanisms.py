"""Every authentication mechanism, once: its requirements, its Java login module, its kafka-python name.

Properties are librdkafka's by their own names, and two more that only we read: `TOKEN_CALLBACK`, and the
mechanism `AWS_MSK_IAM`, a name of Java and kafka-python. `transaction_admin.authentication` has the parts
that need files, networks or other packages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

Properties = Mapping[str, str]

#: The function that returns tokens: `package.module:function`.
TOKEN_CALLBACK = "sasl.oauthbearer.token.callback"  # noqa: S105 - no secret
CALLBACK_FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
OIDC = "oidc"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_METHOD = "sasl.oauthbearer.method"
#: Requests a token by its client's id and secret.
CLIENT_CREDENTIALS = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
)
#: With other values only librdkafka gets tokens: for a signed assertion, from a cloud's own service.
GRANTS = {
    "sasl.oauthbearer.grant.type": "client_credentials",
    "sasl.oauthbearer.metadata.authentication.type": "none",
}


class CannotAuthenticate(Exception):
    """A client cannot authenticate with its properties; the text has the key, the reason and the remedy."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f'"{key}" {reason}')
        self.key, self.reason = key, reason


class BadOption(Exception):
    """The reason for refusing a value."""


class Mechanism(NamedTuple):
    #: Java's login module without its package, and the translation of its options; raises `BadOption`.
    module: str
    login: Callable[[Mapping[str, str]], Mapping[str, str]]
    #: Returns mistakes by key.
    examine: Callable[[Properties], Mapping[str, str]]
    #: librdkafka's names of plain values -> kafka-python's.
    admin: Mapping[str, str]
    #: The remedy when a broker refuses the sign-in.
    check: tuple[str, ...]
    #: Its name in librdkafka and at the broker.
    wire: str


def _renamed(names: Mapping[str, str], needed: tuple[str, ...]) -> Callable[[Properties], Properties]:
    """Return a translation of a login module's options; one without a translation is refused by its name."""

    def translate(options: Properties) -> Properties:
        if missing := [name for name in needed if name not in options]:
            raise BadOption(f"has no {' and '.join(missing)}")
        if unknown := [name for name in options if name not in names]:
            raise BadOption(f"has {unknown[0]}, which has no like in librdkafka: remove it")
        return {names[name]: value for name, value in options.items() if names[name]}

    return translate


def _needs(*keys: str) -> Callable[[Properties], Mapping[str, str]]:
    return lambda properties: {
        key: "is missing, and this mechanism needs it" for key in keys if key not in properties
    }


_USER = {"username": "sasl.username", "password": "sasl.password"}


def _by_password(module: str, name: str) -> Mechanism:
    admin = {"sasl.username": "sasl_plain_username", "sasl.password": "sasl_plain_password"}
    login, examine = _renamed(_USER, ("username", "password")), _needs("sasl.username", "sasl.password")
    return Mechanism(module, login, examine, admin, tuple(_USER.values()), name)


_OAUTH_LOGIN = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_KERBEROS_LOGIN = {
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
    "serviceName": "sasl.kerberos.service.name",
    # Java's settings for finding and storing tickets; both other clients use the same keytab or ticket cache.
    **dict.fromkeys(
        ("useKeyTab", "storeKey", "useTicketCache", "renewTGT", "doNotPrompt", "refreshKrb5Config"), ""
    ),
}


def _oauth_login(options: Properties) -> Properties:
    extension = "extension_"
    extensions = [f"{k.removeprefix(extension)}={v}" for k, v in options.items() if k.startswith(extension)]
    rest = {name: value for name, value in options.items() if not name.startswith(extension)}
    if any(name.startswith("unsecuredLogin") for name in rest):
        raise BadOption(f'asks for unsigned tokens: name a function that returns them, "{TOKEN_CALLBACK}"')
    joined = {"sasl.oauthbearer.extensions": ",".join(extensions)} if extensions else {}
    return {**_renamed(_OAUTH_LOGIN, ())(rest), **joined}


def _examine_oauth(properties: Properties) -> Mapping[str, str]:
    if callback := properties.get(TOKEN_CALLBACK):
        if CALLBACK_FORM.fullmatch(callback):
            return {}
        return {TOKEN_CALLBACK: f"is {callback!r}: write it as package.module:function"}
    if properties.get(_METHOD, "").lower() != OIDC:
        return {_METHOD: f'is not "{OIDC}", and no "{TOKEN_CALLBACK}" is named: where do tokens come from?'}
    if any(properties.get(key, GRANTS[key]) != GRANTS[key] for key in GRANTS):
        return {}
    return _needs(*CLIENT_CREDENTIALS)(properties)


def _examine_msk(properties: Properties) -> Mapping[str, str]:
    if properties.get("security.protocol", "").upper() != "SASL_SSL":
        return {"security.protocol": "must be SASL_SSL: AWS_MSK_IAM has no other"}
    return {}


def _aws_login(options: Properties) -> Properties:
    if options:
        raise BadOption(
            f"has {next(iter(options))}: AWS's own variables say who signs in (AWS_PROFILE, AWS_ROLE_ARN, "
            "AWS_DEFAULT_REGION): set those instead"
        )
    return {}


#: The one table. A new mechanism is a new row; its code for files or networks is beside it, in
#: transaction_admin/authentication/.
MECHANISMS: Mapping[str, Mechanism] = {
    "PLAIN": _by_password("PlainLoginModule", "PLAIN"),
    "SCRAM-SHA-256": _by_password("ScramLoginModule", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": _by_password("ScramLoginModule", "SCRAM-SHA-512"),
    "OAUTHBEARER": Mechanism(
        "OAuthBearerLoginModule",
        _oauth_login,
        _examine_oauth,
        {},
        (*CLIENT_CREDENTIALS, TOKEN_CALLBACK),
        "OAUTHBEARER",
    ),
    "GSSAPI": Mechanism(
        "Krb5LoginModule",
        _renamed(_KERBEROS_LOGIN, ()),
        _needs(),
        {},
        ("sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.keytab"),
        "GSSAPI",
    ),
    "AWS_MSK_IAM": Mechanism(
        "IAMLoginModule", _aws_login, _examine_msk, {}, ("AWS_PROFILE", "AWS_DEFAULT_REGION"), "OAUTHBEARER"
    ),
}


def mechanism_of(properties: Properties) -> str:
    """Return the mechanism of a client; "" without authentication."""
    if not properties.get("security.protocol", "").upper().startswith("SASL"):
        return ""
    return properties.get("sasl.mechanism") or properties.get("sasl.mechanisms", "")


def find_mistakes(properties: Properties) -> Mapping[str, str]:
    """Return mistakes in librdkafka's properties, by key, without opening a file or asking a broker."""
    protocol = properties.get("security.protocol", "plaintext")
    if protocol.upper() not in PROTOCOLS:
        return {"security.protocol": f"is {protocol!r}: known are {', '.join(PROTOCOLS)}"}
    if not protocol.upper().startswith("SASL"):
        return {}
    name = mechanism_of(properties)
    if name not in MECHANISMS:
        what = f"is {name!r}" if name else "is missing"
        return {"sasl.mechanism": f"{what}: known are {', '.join(MECHANISMS)}"}
    return MECHANISMS[name].examine(properties)


def what_to_check(properties: Properties) -> str:
    """Return the remedy when a broker refuses the sign-in."""
    mechanism = MECHANISMS.get(mechanism_of(properties), MECHANISMS["PLAIN"])
    *first, last = ("sasl.mechanism", *mechanism.check)
    return "check " + ", ".join(f'"{key}"' for key in first) + f' and "{last}"'


#: librdkafka's message for a mechanism that it was built without.
_NOT_BUILT = re.compile(r"No provider for SASL mechanism (\w+)")


def explain_refusal(text: str) -> str:
    """Return why librdkafka refuses a client, in an operator's words."""
    if match := _NOT_BUILT.search(text):
        return (
            f'"sasl.mechanism" is {match[1]}, which this librdkafka was built without, as all wheels of '
            "confluent-kafka are: build it with libsasl2 (pip install --no-binary confluent-kafka "
            "confluent-kafka, beside a librdkafka of the same release), or sign in by another mechanism"
        )
    return text
