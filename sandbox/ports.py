"""Ports on the loopback address: free ones and taken ones."""

import random
import socket

from sandbox import SandboxError

HOST = "127.0.0.1"


#: Below the kernel's range for outgoing connections: one of these could take the port between our check and
#: the server's start.
_PORTS = range(12_000, 32_000)
#: Not the module's own generator: tests that seed it would draw the same ports.
_dice = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """Return a free TCP port that this process has not returned before."""
    while True:
        port = _dice.choice(_PORTS)
        if port not in _given and is_free(port):
            _given.add(port)
            return port


def is_free(port: int) -> bool:
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
    """Bind the port for a moment, as a server would; raises OSError if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
