"""Ports on the loopback address: free ones, taken ones, and ones that answer."""

from __future__ import annotations

import random
import socket

from sandbox.errors import SandboxError

HOST = "127.0.0.1"


#: Below those that the kernel gives to outgoing connections: between our look and the server's start, one of
#: these would take the port away.
_PORTS = range(12_000, 32_000)
#: Not the module's own: a test that seeds it would draw the same ports as the one beside it.
_dice = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """Return a TCP port that is free now, and that this process was not given before."""
    while True:
        port = _dice.choice(_PORTS)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    try:
        _listen(port)
    except OSError:
        return False
    return True


def require_free(port: int, purpose: str, remedy: str) -> None:
    """Raise SandboxError unless a server could listen on the port now."""
    try:
        _listen(port)
    except OSError as error:
        raise SandboxError(f"port {port} ({purpose}) is not usable: {error.strerror}: {remedy}") from None


def _listen(port: int) -> None:
    """Take the port as a server would, for a moment; raises OSError where it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))


def port_answers(port: int) -> bool:
    """Whether something accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
