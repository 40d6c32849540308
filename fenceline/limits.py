"""Where the rules draw their lines, and how long history is kept: numbers of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Where rules draw their lines; `[limits]` in fenceline.toml. Seconds."""

    open_too_long_s: float = 60.0
    collector_behind_s: float = 5.0
    #: How often coordinators are asked for their open transactions, at most; 0 asks them nothing at all.
    reconcile_every_s: float = 1.0

    def as_mapping(self) -> Mapping[str, float]:
        """Return the limits by name, for the configuration page."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Retention:
    """How long history is kept; `[retention]` in fenceline.toml. Days."""

    transitions_d: float = 30.0
    minutes_d: float = 7.0
    hours_d: float = 400.0
    #: Findings and gaps that are over.
    closed_d: float = 30.0

    def as_mapping(self) -> Mapping[str, float]:
        """Return the days by name, for the configuration page."""
        return {name: getattr(self, name) for name in self.__slots__}
