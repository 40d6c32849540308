"""The threads of requests: one for all code of a request, kept for the next one, never for two at once."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.urls import path

from dashboard.web.server.serving import RequestThreads

WAIT_S = 20


begun, release = threading.Event(), threading.Event()


def _here(_: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{threading.get_ident()} {id(connections['default'])}")


def _slow(request: HttpRequest) -> HttpResponse:
    begun.set()
    assert release.wait(WAIT_S)
    return _here(request)


urlpatterns = [path("here", _here), path("slow", _slow)]


@pytest.fixture
def handler(settings: Any) -> Iterator[RequestThreads]:
    settings.ROOT_URLCONF, settings.MIDDLEWARE = __name__, []
    begun.clear()
    release.clear()
    yield RequestThreads()
    release.set()


def test_requests_one_after_the_other_share_a_thread_and_its_connection(handler: RequestThreads) -> None:
    async def asked() -> list[str]:
        return [await _answer(handler, "/here") for _ in range(10)]

    assert len(set(asyncio.run(asked()))) == 1


def test_a_request_runs_beside_a_slow_one(handler: RequestThreads) -> None:
    async def asked() -> tuple[str, str]:
        async with _begun(handler) as slow:
            quick = await _answer(handler, "/here")
            release.set()
            return quick, await _body(slow)

    quick, slow = asyncio.run(asked())
    assert quick != slow


def test_the_thread_of_a_client_that_left_serves_nobody_until_its_request_ends(
    handler: RequestThreads,
) -> None:
    async def asked() -> list[str]:
        async with _begun(handler) as slow:
            await slow.send_input({"type": "http.disconnect"})
            return [await _answer(handler, "/here") for _ in range(3)]

    assert len(set(asyncio.run(asked()))) == 1


def test_more_requests_at_once_than_threads_are_kept_are_all_answered(handler: RequestThreads) -> None:
    async def asked() -> list[str]:
        return list(await asyncio.gather(*(_answer(handler, "/here") for _ in range(30))))

    assert len(asyncio.run(asked())) == 30


@asynccontextmanager
async def _begun(handler: RequestThreads) -> AsyncIterator[ApplicationCommunicator]:
    """Yield a slow request once its view runs."""
    slow = await _ask(handler, "/slow")
    assert await asyncio.to_thread(begun.wait, WAIT_S)
    yield slow
    slow.stop(exceptions=False)


async def _answer(handler: RequestThreads, where: str) -> str:
    return await _body(await _ask(handler, where))


async def _ask(handler: RequestThreads, where: str) -> ApplicationCommunicator:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": where,
        "query_string": b"",
        "headers": [],
    }
    link = ApplicationCommunicator(handler, scope)
    await link.send_input({"type": "http.request", "body": b""})
    return link


async def _body(link: ApplicationCommunicator) -> str:
    start, answer = await link.receive_output(WAIT_S), await link.receive_output(WAIT_S)
    await link.wait(WAIT_S)
    assert start["status"] == 200
    return str(answer["body"].decode())
