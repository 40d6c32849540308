"""`[alerts]` of the configuration: when and how alerts are notified. Pure."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alerting:
    """When alerts fire and how they are notified; `_s` are seconds, `_ticks` evaluations, one a second."""

    #: Complete ticks that find a finding before it fires, and that miss it before it resolves.
    for_ticks: int = 2
    resolve_ticks: int = 2
    #: As in Alertmanager: how long a group's first message waits for more alerts, the interval of later ones,
    #: and the interval of repeats while alerts fire.
    group_wait_s: float = 30.0
    group_interval_s: float = 300.0
    repeat_interval_s: float = 14_400.0
    group_by: tuple[str, ...] = ("cluster", "incident")
    #: Openings within the window that make an alert flap: it keeps firing until it is quiet for the window.
    flap_openings: int = 5
    flap_s: float = 600.0
    #: How long a delivery is retried, with growing pauses.
    retry_for_s: float = 3_600.0
    timeout_s: float = 10.0
    #: Consecutive failed messages that disable a channel.
    disable_after: int = 10
    #: Permitted receivers at private addresses: CIDRs, host names, or one port of a host, HOST:PORT.
    allow_private: tuple[str, ...] = ()
    #: The dashboard's address for people: links in messages begin with it.
    external_url: str = "http://127.0.0.1:8000"


#: HOST:PORT, for an IPv6 address [ADDRESS]:PORT; a CIDR has no port.
_ONE_PORT = re.compile(r"(\[[^\]/]+\]|[^:/\[\]]+):([0-9]{1,5})")


def split_port(entry: str) -> tuple[str, int | None]:
    """Return the host or CIDR of an entry of `allow_private`, and its port; None for every port."""
    match = _ONE_PORT.fullmatch(entry)
    return (match[1], int(match[2])) if match else (entry, None)
