"""`[alerts]` of the configuration: when an alert is notified, and how. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alerting:
    """When alerts fire and how they are notified; `_s` are seconds, `_ticks` evaluations, one a second."""

    #: A finding must be found in so many complete ticks before it fires, and missing in so many to resolve.
    for_ticks: int = 2
    resolve_ticks: int = 2
    #: As Alertmanager's: the first message of a group waits so long for more; later ones come so far apart;
    #: what goes on firing is repeated.
    group_wait_s: float = 30.0
    group_interval_s: float = 300.0
    repeat_interval_s: float = 14_400.0
    group_by: tuple[str, ...] = ("cluster", "incident")
    #: An alert that opens so often within so many seconds is flapping: it goes on firing until it was quiet
    #: for as long.
    flap_openings: int = 5
    flap_s: float = 600.0
    #: A delivery is tried again with longer and longer pauses, for so long.
    retry_for_s: float = 3_600.0
    timeout_s: float = 10.0
    #: A channel is disabled after so many messages in a row that nobody took.
    disable_after: int = 10
    #: Receivers at private addresses that may be reached all the same: CIDRs, host names, or one port of a
    #: host, HOST:PORT.
    allow_private: tuple[str, ...] = ()
    #: Where people reach the dashboard: links in messages begin with it.
    external_url: str = "http://127.0.0.1:8000"


#: HOST:PORT, of an IPv6 address [ADDRESS]:PORT; a CIDR has no port.
_ONE_PORT = re.compile(r"(\[[^\]/]+\]|[^:/\[\]]+):([0-9]{1,5})")


def split_port(entry: str) -> tuple[str, int | None]:
    """Return the host or CIDR of an entry of `allow_private`, and its port; None: every port."""
    found = _ONE_PORT.fullmatch(entry)
    return (found[1], int(found[2])) if found else (entry, None)
