"""The current HTTP request or command of manage.py, as the origin of a change, and the client's address.

The context variables are copied by asgiref into the threads of views. `REMOTE_ADDR` is from uvicorn: a
forwarded address counts only if FORWARDED_ALLOW_IPS names the proxy that sent it. This module reads no
header.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address, ip_network

from django.http import HttpRequest, HttpResponse

#: One client is assumed to own all addresses of an IPv6 network of this size.
_IPV6_PREFIX = 64


def client_address(request: HttpRequest) -> str:
    """Return a client's IP address, "" without one, as over a Unix socket, or for a proxy's "unknown"."""
    return plain_address(request.META.get("REMOTE_ADDR", ""))


def plain_address(text: str) -> str:
    """Return an IP address in its usual form, a mapped IPv4 address unmapped; "" for other texts."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def limited_address(address: str) -> str | None:
    """Return the key of rate limits: an IPv4 address, or an IPv6 network's first one; None for ""."""
    if ":" in address:
        return str(ip_network((address, _IPV6_PREFIX), strict=False).network_address)
    return address or None


#: The request itself: its user and its token are known only after the middleware.
current_request: ContextVar[HttpRequest | None] = ContextVar("current_request", default=None)
#: The name of the running command of manage.py, or "".
current_command: ContextVar[str] = ContextVar("current_command", default="")


def note_request(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Set every request as the current one while it is answered."""

    def handle(request: HttpRequest) -> HttpResponse:
        token = current_request.set(request)
        try:
            return get_response(request)
        finally:
            current_request.reset(token)

    return handle


@contextmanager
def command_origin(name: str) -> Iterator[None]:
    """Set a command's name as the current one inside the block."""
    token = current_command.set(name)
    try:
        yield
    finally:
        current_command.reset(token)
