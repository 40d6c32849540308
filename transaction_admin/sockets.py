"""Sockets and a selector for kafka-python's connections, where its own cost too much.

It depends on the library's internals, whose version is pinned.
"""

from __future__ import annotations

import selectors
from socket import socket as Socket
from typing import Any

from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector

#: Bytes of one receive call.
_RECEIVED = 256 * 1024


class _LargeReadSocket(Socket):
    """Receives up to 256 kB at once: kafka-python asks for 4 kB, and waits for Python's lock each time."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        return super().recv(max(size, _RECEIVED), flags)


class DirectSocket(KafkaNetSocket):  # type: ignore[misc]
    """Connects without a proxy like kafka-python, and closes the socket of a failed connection.

    kafka-python leaves that socket to the garbage collector. A client tries each second while its broker is
    unreachable, and an idle process collects nothing: after minutes it had a thousand open sockets.
    """

    SCHEMES = ("direct",)

    def socket(self, family: int, sock_type: int, proto: int) -> Socket:
        """Return a new socket; kafka-python calls this for each connection."""
        return _LargeReadSocket(family, sock_type, proto)

    async def sock_connect(
        self, net: NetworkSelector, sock: Socket, sockaddr: Any, timeout_at: float | None = None
    ) -> Socket:
        """Return the connected socket. Raises kafka-python's errors."""
        try:
            await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
        return sock


class BriefSelector(selectors.DefaultSelector):
    """A selector with a short error for unknown sockets: kafka-python asks for each before each wait.

    The library's own error contains the socket's addresses, which takes two system calls.
    """

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """Return the key of a registered file. Raises KeyError."""
        key: selectors.SelectorKey = self._fd_to_key[self._fileobj_lookup(fileobj)]  # type: ignore[attr-defined]
        return key
