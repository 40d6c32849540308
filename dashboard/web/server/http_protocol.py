"""uvicorn's HTTP protocol with limits for which it has no options.

It is chosen with `--http dashboard.web.server.http_protocol:Protocol`. Without these limits, a connection
with an incomplete header or an unread answer would stay open and count in `--limit-concurrency`. Bodies have
their own limits (`dashboard.web.server.body_limits`).
"""

import asyncio
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dashboard.runtime.problems import PROBLEM_TYPE, problem_body

#: Maximum time for a complete header, from the connection or the first byte of the header.
HEADER_S = 10.0
#: Maximum time to read an answer that is larger than the buffers of the connection.
ANSWER_S = 60.0
#: Connections beyond `--limit-concurrency` that are still answered, with 503; the others are closed at once.
MOST_REFUSED = 100


class Protocol(H11Protocol):
    _header_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None
    _is_websocket = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a header, or close the connection beyond the limit."""
        super().connection_made(transport)
        # A forwarded address replaces the client's; the sender decides which other headers are trusted.
        self.app_state = {**self.app_state, "peer": self.client[0] if self.client else ""}
        limit = self.limit_concurrency
        if limit is not None and len(self.connections) > limit + MOST_REFUSED:
            transport.abort()
            return
        self._header_timer = self.loop.call_later(HEADER_S, self._header_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stop waiting for a complete header, begin to wait for the next one."""
        super().data_received(data)
        if not self._is_websocket:
            self._wait_for_header()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP, or a too long address or header, as a problem, and close."""
        why = f"{msg} An address and its headers have at most 64 KiB."
        self.transport.write(_problem(self.conn, HTTPStatus.BAD_REQUEST, why))
        self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to the WebSocket's protocol."""
        self._is_websocket = True
        self._stop_waiting()
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """Begin to wait until the client reads."""
        super().pause_writing()
        self._wait_for_reader()

    def on_response_complete(self) -> None:
        """Begin to wait until the client has read the answer, and for the rest of an unread body."""
        super().on_response_complete()
        self._wait_for_reader()
        self._wait_for_header()

    def _wait_for_reader(self) -> None:
        if self._answer_timer is None and self.transport.get_write_buffer_size():
            self._answer_timer = self.loop.call_later(ANSWER_S, self._answer_is_late, self.cycle)

    def _answer_is_late(self, cycle: object) -> None:
        """Close a connection with an unread answer, unless a later answer has begun."""
        self._answer_timer = None
        if self.cycle is not cycle:
            self._wait_for_reader()
        elif self.transport.get_write_buffer_size():
            self.transport.abort()

    def _wait_for_header(self) -> None:
        unread = self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete
        if self.transport.is_closing() or not (unread or self.conn.their_state is h11.IDLE):
            self._cancel_header_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_S, self._header_is_late)

    def _header_is_late(self) -> None:
        """Answer 408 to an incomplete header, and close."""
        self._header_timer = None
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0] and self.conn.our_state is h11.IDLE:
            why = f"The header of this request was not there after {HEADER_S:g} s: send it at once."
            self.transport.write(_problem(self.conn, HTTPStatus.REQUEST_TIMEOUT, why))
        self.transport.close()

    def _stop_waiting(self) -> None:
        self._cancel_header_timer()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def _problem(connection: h11.Connection, status: HTTPStatus, text: str) -> bytes:
    """Return the bytes of an answer that ends a connection."""
    body = problem_body(status, text)
    headers = [
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    events = (
        h11.Response(status_code=status.value, headers=headers, reason=status.phrase.encode()),
        h11.Data(data=body),
        h11.EndOfMessage(),
    )
    return b"".join(connection.send(event) or b"" for event in events)
