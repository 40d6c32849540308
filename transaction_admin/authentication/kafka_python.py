"""The authentication settings of kafka-python's connections."""

from __future__ import annotations

from typing import Any

from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider

from fenceline.authentication.mechanisms import (
    MECHANISMS,
    CannotAuthenticate,
    Properties,
    find_mistakes,
    mechanism_of,
    what_to_check,
)
from transaction_admin.authentication.tokens import BearerToken, TokenCache, msk_region, tokens_of


def sasl_settings(properties: Properties) -> dict[str, Any]:
    """Return the settings for kafka-python's connections; raises `CannotAuthenticate`."""
    for key, reason in find_mistakes(properties).items():
        raise CannotAuthenticate(key, reason)
    name = mechanism_of(properties)
    if not name:
        return {}
    texts = {theirs: properties[key] for key, theirs in MECHANISMS[name].admin.items() if key in properties}
    return {"sasl_mechanism": name, **texts, **_MORE.get(name, lambda _: {})(properties)}


class NoToken(SaslAuthenticationFailedError):  # type: ignore[misc]
    """There is no token to authenticate with; the text has the reason and the remedy."""


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Provides tokens to kafka-python, on the thread of its connections."""

    def __init__(self, tokens: TokenCache) -> None:
        super().__init__()
        self._tokens = tokens

    def token(self) -> str:
        return self._current().text

    def extensions(self) -> dict[str, str]:
        return dict(self._current().extensions)

    def _current(self) -> BearerToken:
        try:
            return self._tokens.current()
        except CannotAuthenticate as error:
            raise NoToken(str(error)) from error


def _oauth(properties: Properties) -> dict[str, Any]:
    return {"sasl_oauth_token_provider": _TokenProvider(tokens_of(properties))}


def _msk(properties: Properties) -> dict[str, Any]:
    # kafka-python signs itself, for the region and the principal that botocore finds.
    msk_region()
    return {}


_CHECK_KERBEROS = what_to_check({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})


def _kerberos(properties: Properties) -> dict[str, Any]:
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError) as error:
        raise CannotAuthenticate(
            "sasl.mechanism",
            f"is GSSAPI, which takes the package gssapi ({error}): install fenceline[kerberos]",
        ) from None
    service = properties.get("sasl.kerberos.service.name", "kafka")
    principal, keytab = (properties.get(f"sasl.kerberos.{name}", "") for name in ("principal", "keytab"))
    # kafka-python passes on whatever is the service's name.
    return {"sasl_kerberos_name": (service, principal, keytab)}


class SaslMechanismKeytab(SaslMechanismGSSAPI):  # type: ignore[misc]
    """kafka-python's GSSAPI with the principal of a key tab: its own mechanism only has ticket caches."""

    def __init__(self, **config: Any) -> None:
        import gssapi
        from gssapi.raw.misc import GSSError

        service, principal, keytab = config["sasl_kerberos_name"]
        self._is_done = self._is_authenticated = False
        self.auth_id = f"{service}@{config['host']}"
        by_host = gssapi.Name(self.auth_id, name_type=gssapi.NameType.hostbased_service)
        try:
            self.gssapi_name = by_host.canonicalize(gssapi.MechType.kerberos)
            self._client_ctx = gssapi.SecurityContext(
                name=self.gssapi_name, creds=_credentials(principal, keytab), usage="initiate"
            )
            self._next_token = self._client_ctx.step(None)
        except GSSError as error:
            raise NoToken(f"Kerberos gives no ticket ({error}): {_CHECK_KERBEROS}") from error


def _credentials(principal: str, keytab: str) -> Any:
    """Return the key tab's credentials, in our own cache; without a key tab, the user's ticket cache."""
    import gssapi

    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
    if not keytab:
        return gssapi.Credentials(name=name, usage="initiate")
    store: Any = {
        "client_keytab": f"FILE:{keytab}",
        "ccache": f"MEMORY:fenceline-{principal}-{keytab}",
    }
    return gssapi.Credentials(name=name, usage="initiate", store=store)


register_sasl_mechanism("GSSAPI", SaslMechanismKeytab, overwrite=True)

_MORE = {"OAUTHBEARER": _oauth, "GSSAPI": _kerberos, "AWS_MSK_IAM": _msk}
