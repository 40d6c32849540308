"""Proves the sign-in by the headers of a proxy: at a named address alone, and never as a local user."""

from ipaddress import ip_network
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import AsyncClient

from dashboard.config import Config
from dashboard.config.identity import IdentityProvider, SignInProxy
from dashboard.models import AuditEntry
from dashboard.system import users

pytestmark = pytest.mark.django_db
PROXY = SignInProxy(
    (ip_network("10.0.0.0/8"),),
    IdentityProvider(
        "proxy",
        "",
        "",
        "",
        "the proxy",
        (("sre", "operator"),),
        username_claim="X-User",
        groups_claim="X-Groups",
    ),
)


class FromPeer(AsyncClient):
    """A browser behind a proxy at an address."""

    peer = ""

    async def request(self, **request: Any) -> Any:
        return await super().request(**request, state={"peer": self.peer})

    def ask(self, peer: str, **headers: str) -> Any:
        self.peer = peer
        return async_to_sync(self.get)("/system", headers=headers)


def test_a_proxy_at_a_named_address_signs_users_in(settings: Any) -> None:
    settings.FENCELINE = Config(sign_in_proxy=PROXY)
    client = FromPeer()
    assert client.ask("10.1.2.3", **{"X-User": "ada", "X-Groups": "staff, sre"}).status_code == 200
    assert users.role_of(User.objects.get(username="ada")) == "operator"
    assert client.ask("10.1.2.3", **{"X-User": "ada", "X-Groups": "staff, sre"}).status_code == 200
    assert AuditEntry.objects.filter(event=AuditEntry.Event.SIGN_IN_SUCCEEDED).count() == 1
    assert client.ask("10.1.2.3", **{"X-User": "ada", "X-Groups": "staff"}).status_code == 403


@pytest.mark.parametrize("peer", ["", "192.0.2.7", "::1", "no address"])
def test_nobody_else_is_believed(settings: Any, peer: str) -> None:
    settings.FENCELINE = Config(sign_in_proxy=PROXY)
    said = {"X-User": "ada", "X-Groups": "sre", "X-Forwarded-For": "10.1.2.3"}
    answer = FromPeer().ask(peer, **said)
    assert answer.status_code == 302
    assert not User.objects.exists()


def test_a_proxy_names_no_local_user(settings: Any) -> None:
    settings.FENCELINE = Config(sign_in_proxy=PROXY)
    User.objects.create_superuser("root", password="a password of root")
    answer = FromPeer().ask("10.1.2.3", **{"X-User": "root", "X-Groups": "sre"})
    assert answer.status_code == 403
    assert "is not of the proxy" in answer.content.decode()
