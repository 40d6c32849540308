"""What there is to show of the history job's reports, or why there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.reports import Manifest, ReportFigures


class ReportTrouble(NamedTuple):
    """Why there is nothing to show: in a few words, what is the matter, what to do."""

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """What is there of one cluster: a manifest, or why there is none."""

    manifest: Manifest | None = None
    trouble: ReportTrouble | None = None


class Day(NamedTuple):
    """An application's figures of one day, `2026-11-22`."""

    day: str
    application: str
    figures: ReportFigures


class BusyTransaction(NamedTuple):
    """A transactional id, and what happened to it in a range of days."""

    transactional_id: str
    application: str
    figures: ReportFigures


@dataclass(frozen=True, slots=True)
class Busiest:
    """The ids to which most happened; `number` of all of them, `whole` where all were ranked."""

    items: Sequence[BusyTransaction] = ()
    number: int = 0
    whole: bool = True


class ManifestKey:
    """A manifest as a key of what was read by it: two of one micro-batch are the same."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._is = (manifest.cluster, manifest.query, manifest.batch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManifestKey) and other._is == self._is

    def __hash__(self) -> int:
        return hash(self._is)
