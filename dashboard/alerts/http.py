"""One HTTP request to another server: alerts send only through this module. It connects to exactly the
address that the guard permitted, with the name for TLS and `Host`. One deadline limits the whole request, so
that no slow receiver holds a worker. It follows no redirects, uses no proxies, inflates nothing, and reads
only the beginning of the answer.
"""

from __future__ import annotations

import base64
import functools
import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.alerts.ssrf import Connector, Target, TargetGuard, TargetRefused, Unresolved

USER_AGENT = "Fenceline"
#: Kept bytes of an answer, and the seconds to wait for its body: only the status matters.
KEPT = 4096
_BODY_S = 2.0
_WHOLE = 262_144
#: Maximum addresses of one name that are tried.
_MOST_ADDRESSES = 4


class NotSent(Exception):
    """No answer; the text is the problem and the remedy. `retry`: whether a later attempt may succeed."""

    def __init__(self, text: str, *, retry: bool, address: str = "") -> None:
        super().__init__(text)
        self.retry, self.address = retry, address


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A server's answer: the status, and the undecoded beginning of its body."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    #: The address that was connected to.
    address: str


def send_request(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    guard: TargetGuard,
    method: str = "POST",
    whole: bool = False,
) -> HttpAnswer:
    """Send one request and return the answer, whatever its status; raises `NotSent`.

    `timeout_s` limits the whole request, from connecting to the last byte of the answer. `whole` reads up to
    256 kB of the answer to its end.
    """
    deadline = _Deadline(time.monotonic() + timeout_s)
    try:
        addresses = guard.allowed_addresses(target)
    except TargetRefused as error:
        raise NotSent(str(error), retry=False) from error
    except Unresolved as error:
        raise NotSent(str(error), retry=True) from error
    connected, address = _connect(target, addresses, guard.connect, deadline, timeout_s)
    try:
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.sock = _Timed(connected, deadline)
        connection.request(method, target.path, body=body, headers={**_headers(target), **headers})
        response = connection.getresponse()
        if not whole:
            deadline.end = min(deadline.end, time.monotonic() + _BODY_S)
        body = _beginning(response, _WHOLE if whole else KEPT)
        return HttpAnswer(response.status, response.reason, tuple(response.getheaders()), body, address)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotSent(_error_text(error, target, timeout_s), retry=True, address=address) from error
    finally:
        connected.close()


def _connect(
    target: Target, addresses: list[str], connect: Connector, deadline: _Deadline, timeout_s: float
) -> tuple[socket.socket, str]:
    """Return a connection to the first address that accepts one, and that address."""
    tried = addresses[:_MOST_ADDRESSES]
    for number, address in enumerate(tried):
        raw: socket.socket | None = None
        try:
            # Each address gets a share of the time, so that a dead address leaves time for the others.
            raw = connect((address, target.port), deadline.remaining_s() / (len(tried) - number))
            if target.scheme == "http":
                return raw, address
            raw.settimeout(deadline.remaining_s())
            return _tls().wrap_socket(raw, server_hostname=target.host), address
        except OSError as error:
            if raw is not None:
                raw.close()
            elif number < len(tried) - 1:
                continue
            raise NotSent(_error_text(error, target, timeout_s), retry=True, address=address) from error
    raise AssertionError("the guard returns at least one address")


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the context of all connections: the system's store of authorities, or SSL_CERT_FILE's."""
    return ssl.create_default_context()


class _Deadline:
    """The end of the whole request, by the monotonic clock."""

    def __init__(self, end: float) -> None:
        self.end = end

    def remaining_s(self) -> float:
        remaining = self.end - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        return remaining


class _SocketReader(io.RawIOBase):
    """Reads a socket until the deadline, regardless of the size of the pieces."""

    def __init__(self, connected: socket.socket, deadline: _Deadline) -> None:
        self._socket, self._deadline = connected, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        self._socket.settimeout(self._deadline.remaining_s())
        return self._socket.recv_into(buffer)


class _Timed:
    """A socket for http.client whose every operation ends at the deadline."""

    def __init__(self, connected: socket.socket, deadline: _Deadline) -> None:
        self._socket, self._deadline = connected, deadline

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(self._deadline.remaining_s())
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_SocketReader(self._socket, self._deadline), 2048)

    def close(self) -> None:
        """Leave the socket open for its owner: http.client closes it while the body is still unread."""


def _headers(target: Target) -> dict[str, str]:
    headers = {
        "Host": target.authority,
        "User-Agent": USER_AGENT,
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    if target.login is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(target.login).encode()).decode()
    return headers


def _beginning(response: http.client.HTTPResponse, longest: int) -> bytes:
    """Return the beginning of a body, shorter if it stops or comes too slowly."""
    kept = bytearray()
    try:
        while len(kept) < longest and (more := response.read1(longest - len(kept))):
            kept += more
    except (OSError, http.client.HTTPException, ValueError):
        return bytes(kept)
    return bytes(kept)


def _error_text(error: Exception, target: Target, timeout_s: float) -> str:
    where = f"{target.scheme}://{target.authority}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"The certificate of {where} cannot be verified: {error.verify_message}. Renew it, or put its"
            " authority into this system's store (or into the file that SSL_CERT_FILE names)."
        )
    if isinstance(error, ssl.SSLError):
        why = error.reason or str(error)
        return f"No TLS with {where}: {why}. Check that the port speaks TLS (https) and not plain http."
    if isinstance(error, TimeoutError):
        remedy = "Check the receiver, or raise [alerts] timeout_s"
        return f"{where} did not answer within {timeout_s:.3g} s. {remedy}."
    if isinstance(error, ConnectionRefusedError):
        return f"Nothing listens at {where}: connection refused. Start the receiver or correct the port."
    if isinstance(error, http.client.RemoteDisconnected):
        return f"{where} closed the connection without an answer. Check the receiver's log."
    if isinstance(error, (http.client.HTTPException, ValueError)):
        return f"{where} answered something that is not HTTP ({type(error).__name__}). Check host and port."
    failed = getattr(error, "strerror", None) or error
    return f"The connection to {where} failed: {failed}. Check the receiver."
