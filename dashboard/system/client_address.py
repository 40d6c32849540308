"""Where a request comes from.

`REMOTE_ADDR` is what uvicorn found: a forwarded address counts only where FORWARDED_ALLOW_IPS names the proxy
that sent it. No header is read here.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

from django.http import HttpRequest

#: Whoever has one address of an IPv6 network of this size has all of them.
_IPV6_PREFIX = 64


def client_address(request: HttpRequest) -> str:
    """Return the IP address of a client, "" where it is none: over a Unix socket, or a proxy's "unknown"."""
    return plain_address(request.META.get("REMOTE_ADDR", ""))


def plain_address(text: str) -> str:
    """Return an IP address as it is usually written, an IPv4 address also where it is mapped; "" for none."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def limited_address(address: str) -> str | None:
    """Return what is limited together: an IPv4 address, or the first one of an IPv6 network; None for ""."""
    if ":" in address:
        return str(ip_network((address, _IPV6_PREFIX), strict=False).network_address)
    return address or None
