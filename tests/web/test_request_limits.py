"""Proves that no request takes more memory or time than its path may have, by a server and plain sockets."""

import asyncio
import json
import socket
import threading
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import uvicorn
from asgiref.testing import ApplicationCommunicator
from websockets.sync.client import connect

from dashboard import asgi
from dashboard.models import Token
from dashboard.system.tokens import token_digest
from dashboard.web.server import body_limits, http_protocol
from dashboard.web.server.body_limits import BodyLimits, Lane
from dashboard.web.server.serving import RequestThreads
from sandbox.options import ROOT
from sandbox.ports import HOST, free_port
from tests.cases import cases
from tests.waiting import wait_for

KB = 1024
#: More than the buffers of two sockets hold.
LARGE = 16 * KB * KB
#: Longer than a header may take in the test of WebSockets.
LATER_S = 0.5
SMALL_LANE, INGEST_LANE = 100 * KB, 800 * KB


class Application:
    """Answers with the size of the body; `/large` with a large body, `/held` when it is let go.

    To a WebSocket it says something after LATER_S.
    """

    def __init__(self) -> None:
        self.bodies: list[int] = []
        self.let_go = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._greet_later(send)
        if scope["type"] != "http":
            return
        size, message = 0, {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            size += len(message.get("body", b""))
        self.bodies.append(size)
        if scope["path"].endswith("/held"):
            await asyncio.to_thread(self.let_go.wait, 60)
        answer = b"x" * LARGE if scope["path"] == "/large" else str(size).encode()
        length = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": answer})

    async def _greet_later(self, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await asyncio.sleep(LATER_S)
        await send({"type": "websocket.send", "text": "still here"})


@contextmanager
def serving(app: Any, limit: int | None = None) -> Iterator[tuple[int, uvicorn.Server]]:
    """Run uvicorn with our protocol in a thread; yields its port."""
    port = free_port()
    config = uvicorn.Config(
        app, host=HOST, port=port, http=http_protocol.Protocol, log_level="critical", lifespan="off",
        limit_concurrency=limit,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started, "the server listens")
        yield port, server
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


async def anybody(authorization: str) -> bool:
    return authorization == "Bearer known"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client of these tests reads its answer late, but one."""
    monkeypatch.setattr(body_limits, "LINGER_S", 0.2)


@pytest.fixture
def app() -> Application:
    return Application()


@pytest.fixture
def port(app: Application) -> Iterator[int]:
    lanes = {"small": Lane(SMALL_LANE, 300 * KB), "ingest": Lane(INGEST_LANE, 2 * INGEST_LANE)}
    with serving(BodyLimits(app, **lanes, may_post=anybody)) as (port, _):
        yield port
        app.let_go.set()


def connected(port: int) -> Any:
    return closing(socket.create_connection((HOST, port), timeout=60))


def head(path: str, *headers: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode()


def received(link: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Read one answer: its status, headers and body."""
    with link.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        headers = {}
        while line := stream.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers, stream.read(int(headers["content-length"]))


def ended(link: socket.socket) -> bool:
    """Whether the server closes the connection, after nothing more."""
    return _received(link) == 0


def problem(link: socket.socket, status: int) -> str:
    """Read a problem and return its text; the connection ends with it."""
    found, headers, body = received(link)
    said = json.loads(body)
    assert (found, said["status"]) == (status, status), said
    assert headers["content-type"] == "application/problem+json; charset=utf-8"
    assert said.keys() == {"type", "title", "status", "detail"}
    assert ended(link)
    return str(said["detail"])


@cases(("/", SMALL_LANE), ("/login/", SMALL_LANE), ("/ingest/v1/progress", INGEST_LANE))
def test_a_body_is_bounded_by_its_path(port: int, app: Application, path: str, most: int) -> None:
    known = "Authorization: Bearer known"
    with connected(port) as link:
        link.sendall(head(path, known, f"Content-Length: {most}") + b"x" * most)
        assert received(link)[::2] == (200, str(most).encode())
        # The same connection goes on.
        link.sendall(head(path, known, f"Content-Length: {most + 1}"))
        assert f"at most {most:,} bytes" in problem(link, 413)
    assert app.bodies == [most]


def test_a_websocket_has_none_of_these_limits(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_S", LATER_S / 10)
    with connect(f"ws://{HOST}:{port}/ws/live") as link:
        assert link.recv(60) == "still here"


def test_a_body_of_no_declared_length_is_refused_at_the_bound(port: int, app: Application) -> None:
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    with connected(port) as link:
        link.sendall(head("/", "Transfer-Encoding: chunked") + chunk * 4)
        assert "at most" in problem(link, 413)
    assert app.bodies == []


def test_who_sends_on_after_a_refusal_still_reads_it(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "LINGER_S", 30)
    with connected(port) as link:
        link.sendall(head("/", f"Content-Length: {LARGE}"))
        link.sendall(b"x" * LARGE)
        problem(link, 413)


def test_a_body_that_does_not_arrive_is_a_408(
    port: int, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limits, "BODY_S", 0.2)
    with connected(port) as link:
        link.sendall(head("/", "Content-Length: 5") + b"four")
        assert "body of this request" in problem(link, 408)
    assert app.bodies == []


@pytest.mark.parametrize("authorization", ["Bearer unknown", ""])
def test_what_a_stranger_posts_is_not_read(port: int, app: Application, authorization: str) -> None:
    with connected(port) as link:
        credentials = f"Authorization: {authorization}"
        link.sendall(head("/ingest/v1/progress", credentials, f"Content-Length: {INGEST_LANE}"))
        assert received(link)[::2] == (200, b"0")
        link.sendall(b"x" * INGEST_LANE)
        link.sendall(head("/", "Content-Length: 3") + b"abc")
        assert received(link)[::2] == (200, b"3")
    assert app.bodies == [0, 3]


def test_bodies_share_a_bound_and_small_ones_are_always_taken(port: int, app: Application) -> None:
    links = [socket.create_connection((HOST, port), timeout=60) for _ in range(4)]
    try:
        for link in links[:3]:
            link.sendall(head("/held", f"Content-Length: {SMALL_LANE}") + b"x" * SMALL_LANE)
        wait_for(lambda: len(app.bodies) == 3, "three large bodies are held")
        links[3].sendall(head("/", f"Content-Length: {SMALL_LANE}") + b"x" * SMALL_LANE)
        assert "try again in 5 s" in problem(links[3], 503)
        with connected(port) as link:
            link.sendall(head("/", "Content-Length: 60000") + b"x" * 60_000)
            assert received(link)[::2] == (200, b"60000")
        app.let_go.set()
        assert [received(link)[0] for link in links[:3]] == [200, 200, 200]
        with connected(port) as link:
            link.sendall(head("/", f"Content-Length: {SMALL_LANE}") + b"x" * SMALL_LANE)
            assert received(link)[0] == 200
    finally:
        for link in links:
            link.close()


def test_a_client_that_goes_away_leaves_nothing(port: int, app: Application) -> None:
    for _ in range(8):
        with connected(port) as link:
            link.sendall(head("/", f"Content-Length: {SMALL_LANE}") + b"x" * (SMALL_LANE - 1))
    with connected(port) as link:
        link.sendall(head("/", f"Content-Length: {SMALL_LANE}") + b"x" * SMALL_LANE)
        assert received(link)[0] in (200, 503)
    assert sum(app.bodies) in (0, SMALL_LANE)


@pytest.mark.parametrize("before", [b"", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"])
@pytest.mark.parametrize("part", [b"", b"G", b"GET / HTTP/1.1\r\nHost: here\r\nX: "])
def test_a_header_that_does_not_arrive_ends_the_connection(
    port: int, monkeypatch: pytest.MonkeyPatch, before: bytes, part: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_S", 0.2)
    with connected(port) as link:
        if before:
            link.sendall(before)
            assert received(link)[0] == 200
        link.sendall(part)
        if part:
            assert "header of this request" in problem(link, 408)
        assert ended(link)


def test_a_header_that_drips_is_late_as_well(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_S", 0.5)
    with connected(port) as link:
        link.sendall(b"GET / HTTP/1.1\r\n")
        link.settimeout(0.01)

        def answer() -> bytes:
            try:
                link.sendall(b"X: y\r\n")
                return link.recv(KB)
            except TimeoutError:
                return b""

        assert b" 408 " in wait_for(answer, "it is refused")


@pytest.mark.parametrize("line", [f"GET /{'x' * 70_000} HTTP/1.1\r\n\r\n", "no HTTP at all\r\n\r\n"])
def test_what_is_no_request_is_a_problem(port: int, line: str) -> None:
    with connected(port) as link:
        link.sendall(line.encode())
        answer = link.recv(4 * KB)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer
    assert b"at most 64 KiB" in answer


def test_an_answer_that_nobody_reads_is_dropped(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "ANSWER_S", 0.2)
    with serving(app) as (port, server), connected(port) as link:
        link.sendall(head("/large", method="GET"))
        wait_for(lambda: app.bodies and not server.server_state.connections, "the connection is dropped")
        assert _received(link) < LARGE


def _received(link: socket.socket) -> int:
    """Return how many bytes come until the connection ends."""
    size = 0
    try:
        while piece := link.recv(KB * KB):
            size += len(piece)
    except ConnectionError:
        pass
    return size


def test_an_answer_that_is_read_comes_whole(port: int) -> None:
    with connected(port) as link:
        for _ in range(2):
            link.sendall(head("/large", method="GET"))
            status, _, body = received(link)
            assert (status, len(body)) == (200, LARGE)


def test_connections_have_a_bound(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "MOST_REFUSED", 2)
    with serving(app, limit=3) as (port, server):
        links = [socket.create_connection((HOST, port), timeout=60) for _ in range(5)]
        wait_for(lambda: len(server.server_state.connections) == 5, "five are connected")
        with connected(port) as link:
            assert ended(link)
        links[0].sendall(head("/", "Content-Length: 0"))
        assert received(links[0])[0] == 503
        for link in links:
            link.close()
        wait_for(lambda: not server.server_state.connections, "they are gone")
        with connected(port) as link:
            link.sendall(head("/", "Content-Length: 0"))
            assert received(link)[0] == 200


@pytest.mark.django_db(transaction=True)
@cases(
    ("/login/", "", 2**20 + 1, 413),
    ("/api/v1/silences", "", 2**20 + 1, 413),
    ("/nowhere", "", 2**20 + 1, 413),
    ("/ingest/v1/progress", "known", 8 * 2**20 + 1, 413),
    ("/ingest/v1/progress", "known", 8 * 2**20, 400),
    ("/ingest/v1/progress", "viewer", 8 * 2**20, 403),
    ("/ingest/v1/progress", "unknown", 8 * 2**20, 401),
)
def test_fenceline_has_these_bounds(path: str, token: str, size: int, status: int) -> None:
    for name, role in (("known", "ingest"), ("viewer", "viewer")):
        Token.objects.create(name=name, role=role, digest=token_digest(name))
    with serving(asgi.application) as (port, _), connected(port) as link:
        headers = [f"Authorization: Bearer {token}"] if token else []
        link.sendall(head(path, *headers, f"Content-Length: {size}"))
        if status == 400:
            link.sendall(b" " * size)
        assert received(link)[0] == status


def test_a_file_is_sent_piece_by_piece() -> None:
    scope = {
        "type": "http", "method": "GET", "path": "/static/vendor/htmx-2.0.11.min.js", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
    }  # fmt: skip

    async def sent() -> list[Any]:
        link = ApplicationCommunicator(RequestThreads(), scope)
        await link.send_input({"type": "http.request", "body": b""})
        found = [await link.receive_output(60)]
        while found[-1].get("more_body", len(found) == 1):
            found.append(await link.receive_output(60))
        await link.wait()
        return found

    with warnings.catch_warnings():
        # What Django says where it reads a file whole.
        warnings.filterwarnings("error", "StreamingHttpResponse must consume")
        start, *pieces = asyncio.run(sent())
    assert start["status"] == 200
    whole = (ROOT / "dashboard" / scope["path"].lstrip("/")).read_bytes()
    assert b"".join(each.get("body", b"") for each in pieces) == whole


def test_a_request_keeps_the_address_of_the_proxy_beside_the_forwarded_one() -> None:
    async def told(scope: Any, receive: Any, send: Any) -> None:
        body = f"{scope['client'][0]} {scope['state']['peer']}".encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    with serving(told) as (port, _):
        request = urllib.request.Request(f"http://{HOST}:{port}/", headers={"X-Forwarded-For": "203.0.113.9"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.read() == b"203.0.113.9 127.0.0.1"
