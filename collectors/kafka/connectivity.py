"""Check whether hosts are reachable: resolve names and open ports, many at once, each with its time."""

import socket
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

#: librdkafka's default port.
_PORT = 9092
_LATE = "its name is not resolved in time: ask whoever runs the name servers"


class Address(NamedTuple):
    """A host, by name or number, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it in Kafka's spelling."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of an attempt: the resolved address and the time, or the error."""

    ip: str = ""
    connected_ms: float = 0.0
    trouble: str = ""


def parse_address(text: str) -> Address | None:
    """Return the address in `host`, `host:port` or `scheme://host:port`; None for anything else."""
    try:
        # urlsplit does not know Kafka's own schemes (SASL_SSL).
        parts = urlsplit("//" + text.rpartition("://")[2])
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.path or any(character.isspace() for character in host):
        return None
    return Address(host, _PORT if port is None else port)


def connect_all(addresses: Collection[Address], timeout_s: float) -> Mapping[Address, Reached]:
    """Return the result of connecting to each address, all of them within twice `timeout_s`."""
    answers: dict[Address, Reached] = {}
    # No pool: a hanging resolver would delay the end of the process.
    threads = [
        threading.Thread(target=_try, args=(address, timeout_s, answers), daemon=True)
        for address in addresses
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 2 * timeout_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return {address: answers.get(address, Reached(trouble=_LATE)) for address in addresses}


def _try(address: Address, timeout_s: float, answers: dict[Address, Reached]) -> None:
    try:
        places = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        answers[address] = Reached(trouble=f"its name does not resolve ({_reason(error)})")
        return
    # A name may resolve to several addresses: the first that opens suffices, as for the client libraries.
    for family, kind, _, _, where in places:
        answers[address] = _connect(socket.socket(family, kind), where, timeout_s)
        if not answers[address].trouble:
            return


def _connect(connection: socket.socket, where: Any, timeout_s: float) -> Reached:
    ip = str(where[0])
    begun = time.monotonic()
    with connection:
        try:
            connection.settimeout(timeout_s)
            connection.connect(where)
        except (OSError, OverflowError) as error:
            return Reached(ip, trouble=f"no connection to {ip} port {where[1]} ({_reason(error)})")
    return Reached(ip, (time.monotonic() - begun) * 1_000)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
