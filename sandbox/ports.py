"""Ports on the loopback address: free ones, taken ones, and ones that answer."""

from __future__ import annotations

import socket

from sandbox.errors import SandboxError

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a TCP port that was free a moment ago. Another process may still take it first."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def require_free(port: int, purpose: str, remedy: str) -> None:
    """Raise SandboxError unless a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise SandboxError(f"port {port} ({purpose}) is not usable: {error.strerror}: {remedy}") from None


def answers(port: int) -> bool:
    """Whether something accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
