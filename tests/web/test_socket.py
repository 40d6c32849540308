"""Proves the live socket: only users with a role get one, from pages of this server; bells come through; it
ends with the session that opened it; and an outage of Redis stops nobody."""

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.layers import channel_layers, get_channel_layer
from django.contrib.auth.models import Group, Permission, User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from dashboard import asgi
from dashboard.models import ClusterLimit
from dashboard.runtime import notify
from dashboard.web.server import live_socket
from tests.cases import cases
from tests.waiting import wait_for
from tests.web import roles

pytestmark = pytest.mark.django_db(transaction=True)
BELL = {"cluster": "prod", "kind": "transactions", "rev": 7}
HOST = "127.0.0.1:8000"
OWN = f"http://{HOST}"


@pytest.fixture(autouse=True)
def layer(settings: Any) -> Any:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    channel_layers.backends.clear()
    yield get_channel_layer()
    channel_layers.backends.clear()


class Socket:
    """A browser's socket: opened with the cookies of a client, like a page of `origin`."""

    def __init__(self, client: Client, origin: str = OWN, host: str = HOST, scheme: str = "ws") -> None:
        cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
        headers = [(b"host", host.encode()), (b"origin", origin.encode()), (b"cookie", cookies.encode())]
        scope = {
            "type": "websocket", "path": "/ws/live", "query_string": b"", "scheme": scheme,
            "headers": [pair for pair in headers if pair[1]],
        }  # fmt: skip
        self._app = ApplicationCommunicator(asgi.sockets, scope)

    async def open(self) -> str:
        """Connect; returns the type of the answer."""
        await self._app.send_input({"type": "websocket.connect"})
        answer = await self._app.receive_output(10)
        return str(answer["type"])

    async def receive(self) -> dict[str, Any]:
        answer: dict[str, Any] = await self._app.receive_output(10)
        return answer

    async def send(self, text: str) -> None:
        await self._app.send_input({"type": "websocket.receive", "text": text})

    async def is_silent(self) -> bool:
        return bool(await self._app.receive_nothing())

    async def close(self) -> None:
        await self._app.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._app.wait()


def answer_to(socket: Socket) -> str:
    async def scenario() -> str:
        answer = await socket.open()
        await socket.close()
        return answer

    return asyncio.run(scenario())


def end_of(client: Client, change: Callable[[], Any]) -> dict[str, Any]:
    """Return what an open socket sends when `change` is made; then a bell is rung."""

    async def scenario() -> dict[str, Any]:
        socket = Socket(client)
        assert await socket.open() == "websocket.accept"
        await sync_to_async(change)()
        await get_channel_layer().group_send(notify.GROUP, {"type": "bell", **BELL})
        received = await socket.receive()
        await socket.close()
        return received

    return asyncio.run(scenario())


def disable(user: User) -> None:
    user.is_active = False
    user.save()


def change_password(user: User) -> None:
    user.set_password("another one, quite long")
    user.save()


Change = Callable[[Client, User, Group], Any]
#: What ends a session or the role of its user.
ENDS: dict[str, Change] = {
    "signed out": lambda client, user, group: client.post("/logout/"),
    "signed in as somebody else": lambda client, user, group: client.force_login(
        User.objects.create(username="b")
    ),
    "disabled": lambda client, user, group: disable(user),
    "deleted": lambda client, user, group: user.delete(),
    "new password": lambda client, user, group: change_password(user),
    "without groups": lambda client, user, group: user.groups.clear(),
    "removed from the group": lambda client, user, group: group.user_set.remove(user),
    "group deleted": lambda client, user, group: group.delete(),
    "group without permissions": lambda client, user, group: group.permissions.clear(),
    "group without viewing": lambda client, user, group: group.permissions.remove(viewing()),
    "sessions cleared": lambda client, user, group: Session.objects.all().delete(),
}


def viewing() -> Permission:
    return Permission.objects.get(codename="view_cluster")


ACCEPT, CLOSE = "websocket.accept", "websocket.close"


class TestWhoGetsOne:
    @pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
    def test_every_role_does(self, role: str) -> None:
        assert answer_to(Socket(roles.client_with_role(role))) == ACCEPT

    def test_a_superuser_does(self, client: Client) -> None:
        client.force_login(User.objects.create_superuser("root"))
        assert answer_to(Socket(client)) == ACCEPT

    def test_nobody_else_does(self, client: Client) -> None:
        assert answer_to(Socket(client)) == CLOSE
        client.force_login(User.objects.create_user("no role", is_staff=True))
        assert answer_to(Socket(client)) == CLOSE


class TestOrigin:
    """A page of another server on the same machine is a stranger's page: its port differs."""

    @cases(
        (OWN, ACCEPT),
        ("http://127.0.0.1:8001", CLOSE),
        ("http://127.0.0.1", CLOSE),
        ("https://127.0.0.1:8000", CLOSE),
        ("http://localhost:8000", CLOSE),
        ("http://evil.example", CLOSE),
        ("http://127.0.0.1:8000.evil.example", CLOSE),
        ("http://[", CLOSE),
        ("null", CLOSE),
        ("", CLOSE),
    )
    def test_only_the_own_one_counts(self, origin: str, answer: str) -> None:
        assert answer_to(Socket(roles.client_with_role("viewer"), origin)) == answer

    @cases(
        ("https://fenceline.example", ACCEPT),
        ("https://a.team.example:8443", ACCEPT),
        ("http://fenceline.example", CLOSE),
        ("https://fenceline.example:8443", CLOSE),
        ("https://b.fenceline.example", CLOSE),
        ("https://team.example.evil.example:8443", CLOSE),
        ("https://[", CLOSE),
    )
    def test_trusted_ones_count_as_for_forms(self, settings: Any, origin: str, answer: str) -> None:
        settings.CSRF_TRUSTED_ORIGINS = ["https://fenceline.example", "https://*.team.example:8443"]
        assert answer_to(Socket(roles.client_with_role("viewer"), origin)) == answer

    def test_behind_tls_the_scheme_is_the_browser_s(self, settings: Any) -> None:
        settings.ALLOWED_HOSTS = ["fenceline.example"]
        viewer, name = roles.client_with_role("viewer"), "fenceline.example"
        assert answer_to(Socket(viewer, f"https://{name}", name, scheme="wss")) == ACCEPT
        assert answer_to(Socket(viewer, f"http://{name}", name, scheme="wss")) == CLOSE

    @pytest.mark.parametrize("host", ["evil.example", "", "a b", "127.0.0.1:x"])
    def test_a_host_that_is_not_ours_counts_for_nothing(self, host: str) -> None:
        assert answer_to(Socket(roles.client_with_role("viewer"), f"http://{host}", host)) == CLOSE


class TestEnd:
    """A socket ends with its session, at once and without anything being sent first."""

    @pytest.fixture
    def viewer(self) -> Client:
        return roles.client_with_role("viewer")

    @pytest.fixture
    def user(self, viewer: Client) -> User:
        return User.objects.get()

    def test_it_stays_while_nothing_of_it_changes(self, viewer: Client, user: User) -> None:
        other = roles.client_with_role("operator")

        def changes() -> None:
            other.post("/logout/")
            user.first_name = "Ada"
            user.save()
            user.groups.add(Group.objects.get(name="operator"))
            user.groups.remove(Group.objects.get(name="operator"))

        assert json.loads(end_of(viewer, changes)["text"]) == BELL

    @pytest.mark.parametrize("change", ENDS.values(), ids=ENDS)
    def test_it_ends(self, viewer: Client, user: User, change: Change) -> None:
        viewers = Group.objects.get(name="viewer")
        answer = end_of(viewer, lambda: change(viewer, user, viewers))
        assert (answer["type"], answer.get("code")) == (CLOSE, live_socket.SIGNED_OUT)

    def test_a_permission_of_one_s_own_is_a_role_that_ends(self, client: Client) -> None:
        user = User.objects.create_user("a")
        user.user_permissions.add(viewing())
        client.force_login(user)
        assert end_of(client, lambda: user.user_permissions.remove(viewing()))["type"] == CLOSE

    def test_an_idle_one_ends_when_its_session_expires(
        self, viewer: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live_socket, "RECHECK_S", 0.05)
        past = timezone.now() - timedelta(seconds=1)

        async def scenario() -> dict[str, Any]:
            socket = Socket(viewer)
            await socket.open()
            await sync_to_async(Session.objects.update)(expire_date=past)
            received = await socket.receive()
            await socket.close()
            return received

        assert asyncio.run(scenario())["code"] == live_socket.SIGNED_OUT

    def test_no_key_goes_over_the_wire(self, viewer: Client, layer: Any) -> None:
        key = viewer.session.session_key
        asyncio.run(layer.group_add(notify.GROUP, "listener"))
        viewer.post("/logout/")
        assert key not in repr(asyncio.run(layer.receive("listener")))


def test_a_bell_comes_through_and_nothing_else(layer: Any) -> None:
    viewer = roles.client_with_role("viewer")

    async def scenario() -> tuple[dict[str, Any], bool]:
        socket = Socket(viewer)
        await socket.open()
        await socket.send('{"type": "bell", "cluster": "forged"}')
        await layer.group_send(notify.GROUP, {"type": "bell", **BELL, "ids": ["a"]})
        bell, is_silent = await socket.receive(), await socket.is_silent()
        await socket.close()
        return bell, is_silent

    bell, is_silent = asyncio.run(scenario())
    assert json.loads(bell["text"]) == BELL | {"ids": ["a"]}
    assert is_silent


@pytest.mark.parametrize(("ids", "sent"), [(0, False), (1, True), (50, True), (51, False)])
def test_a_bell_names_few_ids_and_no_many(layer: Any, ids: int, sent: bool) -> None:
    async def joined() -> None:
        await layer.group_add(notify.GROUP, "listener")

    asyncio.run(joined())
    notify.notify_change("prod", "transactions", 7, [f"id-{n}" for n in range(ids)])
    notify.wait_until_sent()
    heard = asyncio.run(layer.receive("listener"))
    assert ("ids" in heard) is sent
    assert heard["rev"] == 7


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize(
    ("later", "told"),
    [
        ([["b"], ["a", "c"]], {"rev": 9, "ids": ["a", "b", "c"]}),
        ([["b"], [], ["c"]], {"rev": 10}),
        ([[f"id-{n}" for n in range(30)], [f"id-{n}" for n in range(20, 51)]], {"rev": 9}),
    ],
    ids=["ids of both", "one without ids", "too many ids"],
)
def test_changes_in_a_row_are_told_together(
    layer: Any, later: list[list[str]], told: dict[str, Any], leaves: bool
) -> None:
    async def joined() -> None:
        await layer.group_add(notify.GROUP, "listener")

    async def heard() -> dict[str, list[Any]]:
        bells: dict[str, list[Any]] = {"transactions": [], "groups": []}
        for _ in range(3):
            bell = await layer.receive("listener")
            bells[bell["kind"]].append({key: bell[key] for key in ("rev", "ids") if key in bell})
        return bells

    notify.wait_until_sent()
    asyncio.run(joined())
    notify.notify_change("prod", "transactions", 7, ["a"])
    for rev, ids in enumerate(later, 8):
        notify.notify_change("prod", "transactions", rev, ids)
    notify.notify_change("prod", "groups", 8)
    if leaves:
        notify.wait_until_sent()
    # Its queue wakes no other thread's loop.
    wait_for(lambda: "listener" in layer.channels and layer.channels["listener"].qsize() == 3, "3 bells")
    first = {"rev": 7, "ids": ["a"]}
    assert asyncio.run(heard()) == {"transactions": [first, told], "groups": [{"rev": 8}]}
    notify.wait_until_sent()
    assert "listener" not in layer.channels, "nothing is told twice"


def test_an_outage_of_redis_is_told_once_and_stops_nobody(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]},
    }
    settings.CHANNEL_LAYERS = {"default": nobody}
    channel_layers.backends.clear()
    viewer = roles.client_with_role("viewer")
    with caplog.at_level(logging.WARNING, "dashboard.runtime.notify"):
        for rev in range(3):
            notify.notify_change("prod", "transactions", rev)
        assert viewer.post("/logout/").status_code == 302
        notify.wait_until_sent()
        settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
        channel_layers.backends.clear()
        notify.notify_change("prod", "transactions", 9)
        notify.wait_until_sent()
    channel_layers.backends.clear()
    said = [record.getMessage() for record in caplog.records if record.name == "dashboard.runtime.notify"]
    assert len(said) == 2, said
    assert "poll instead" in said[0]
    assert "answers again" in said[1]


def test_a_silent_redis_holds_nobody_up(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        backend = "channels_redis.pubsub.RedisPubSubChannelLayer"
        settings.CHANNEL_LAYERS = {"default": {"BACKEND": backend, "CONFIG": {"hosts": [url]}}}
        channel_layers.backends.clear()
        began = time.monotonic()
        with caplog.at_level(logging.WARNING, "dashboard.runtime.notify"):
            for rev in range(2):
                notify.notify_change("prod", "transactions", rev)
            notify.wait_until_sent()
        assert time.monotonic() - began < notify._ANSWER_S + 2
    assert [record.name for record in caplog.records] == ["dashboard.runtime.notify"]
    notify._outage.lasting = False


def test_a_limited_user_hears_of_no_other_cluster() -> None:
    client = roles.client_with_role("viewer")
    user = User.objects.get(username="the viewer")
    ClusterLimit.objects.create(user=user, clusters=["staging"])

    async def scenario() -> None:
        socket = Socket(client)
        assert await socket.open() == "websocket.accept"
        for cluster in ("prod", "staging"):
            await get_channel_layer().group_send(notify.GROUP, {"type": "bell", **BELL, "cluster": cluster})
        assert json.loads((await socket.receive())["text"])["cluster"] == "staging"
        assert await socket.is_silent()
        await socket.close()

    asyncio.run(scenario())
