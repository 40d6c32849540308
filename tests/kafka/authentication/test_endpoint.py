"""Proves how a token is asked for by an endpoint where kafka-python has no way of its own: over TLS, by an
authority that is named, once for all clients of a process, and in a sentence where the answer is none."""

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fenceline.authentication.mechanisms import CannotAuthenticate
from tests.identity_provider import IdentityProvider
from tests.receivers import Authority, Receiver
from transaction_admin.authentication.tokens import forget_tokens, tokens_of


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def provider(tmp_path: Path, authority: Authority) -> Iterator[IdentityProvider]:
    forget_tokens()
    certificate, key = authority.issue("provider", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with IdentityProvider(tls=context) as provider:
        yield provider


def configured(url: str, more: Mapping[str, str]) -> Mapping[str, str]:
    return {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": url, "sasl.oauthbearer.client.id": "collector",
        "sasl.oauthbearer.client.secret": "rightful", **more,
    }  # fmt: skip


@pytest.mark.parametrize("key", ["https.ca.location", "https.ca.pem"])
def test_clients_share_a_token_that_came_over_tls(
    provider: IdentityProvider, authority: Authority, key: str
) -> None:
    where = authority.certificate
    trust = {key: where.read_text() if key.endswith("pem") else str(where)}
    properties = configured(provider.token_url, trust)
    first, second = (tokens_of(properties).current() for _ in range(2))
    assert first is second
    assert provider.issued == ["collector"]
    forget_tokens()
    assert tokens_of(properties).current() is not first


def test_another_authority_and_an_answer_without_token_are_refused(provider: IdentityProvider) -> None:
    with Receiver() as receiver:
        for url, said in (
            (provider.token_url, "certificate verify failed"),
            (receiver.url, "without access_token"),
        ):
            with pytest.raises(CannotAuthenticate, match=said) as refused:
                tokens_of(configured(url, {})).current()
            assert refused.value.key == "sasl.oauthbearer.token.endpoint.url"
            assert url in str(refused.value)
            assert "rightful" not in str(refused.value)
