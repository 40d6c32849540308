"""Proves the live socket: strangers stay out, bells come through, and an outage of Redis stops nobody."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.layers import channel_layers, get_channel_layer
from django.contrib.auth.models import AnonymousUser, User

from dashboard import consumers, live
from dashboard.consumers import LiveConsumer

pytestmark = pytest.mark.django_db(transaction=True)
BELL = {"cluster": "prod", "kind": "transactions", "rev": 7}


@pytest.fixture
def layer(settings: Any) -> Any:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    channel_layers.backends.clear()
    yield get_channel_layer()
    channel_layers.backends.clear()


def communicator(user: User | AnonymousUser) -> ApplicationCommunicator:
    scope = {"type": "websocket", "path": "/ws/live", "user": user}
    return ApplicationCommunicator(LiveConsumer.as_asgi(), scope)


async def opened(user: User | AnonymousUser) -> tuple[ApplicationCommunicator, dict[str, Any]]:
    socket = communicator(user)
    await socket.send_input({"type": "websocket.connect"})
    return socket, await socket.receive_output()


async def closed(socket: ApplicationCommunicator) -> None:
    await socket.send_input({"type": "websocket.disconnect", "code": 1000})
    await socket.wait()


def test_a_stranger_is_turned_away(layer: Any) -> None:
    async def scenario() -> dict[str, Any]:
        return (await opened(AnonymousUser()))[1]

    assert asyncio.run(scenario())["type"] == "websocket.close"


def test_a_bell_comes_through_and_nothing_else(layer: Any) -> None:
    async def scenario() -> list[dict[str, Any]]:
        socket, accepted = await opened(User(pk=1, username="a"))
        await socket.send_input(
            {"type": "websocket.receive", "text": '{"type": "bell", "cluster": "forged"}'}
        )
        await layer.group_send(live.GROUP, {"type": "bell", **BELL, "ids": ["a"]})
        rung = await socket.receive_output()
        silent = await socket.receive_nothing()
        await closed(socket)
        return [accepted, rung, {"silent": silent}]

    accepted, rung, after = asyncio.run(scenario())
    assert accepted["type"] == "websocket.accept"
    assert json.loads(rung["text"]) == BELL | {"ids": ["a"]}
    assert after == {"silent": True}


@pytest.mark.parametrize("active", [True, False])
def test_a_deactivated_user_is_let_go(layer: Any, monkeypatch: pytest.MonkeyPatch, active: bool) -> None:
    user = User.objects.create(username="a", is_active=active)
    monkeypatch.setattr(consumers, "RECHECK_S", 0)

    async def scenario() -> dict[str, Any]:
        socket, _ = await opened(user)
        await layer.group_send(live.GROUP, {"type": "bell", **BELL})
        answer = await socket.receive_output()
        await closed(socket)
        return answer

    answer = asyncio.run(scenario())
    assert answer.get("code") == (None if active else consumers.SIGNED_OUT)


@pytest.mark.parametrize(("ids", "sent"), [(0, False), (1, True), (50, True), (51, False)])
def test_a_bell_names_few_ids_and_no_many(layer: Any, ids: int, sent: bool) -> None:
    async def joined() -> None:
        await layer.group_add(live.GROUP, "listener")

    asyncio.run(joined())
    live.ring("prod", "transactions", 7, [f"id-{n}" for n in range(ids)])
    heard = asyncio.run(layer.receive("listener"))
    assert ("ids" in heard) is sent
    assert heard["rev"] == 7


def test_an_outage_of_redis_is_told_once_and_stops_nobody(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]},
    }
    settings.CHANNEL_LAYERS = {"default": nobody}
    channel_layers.backends.clear()
    with caplog.at_level(logging.WARNING, "dashboard.live"):
        for rev in range(3):
            live.ring("prod", "transactions", rev)
        settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
        channel_layers.backends.clear()
        live.ring("prod", "transactions", 9)
    channel_layers.backends.clear()
    said = [record.message for record in caplog.records if record.name == "dashboard.live"]
    assert len(said) == 2, said
    assert "poll instead" in said[0]
    assert "answers again" in said[1]
