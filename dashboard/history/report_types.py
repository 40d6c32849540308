"""Results of the history job's reports, or the reason for none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.history.reports import Manifest, ReportFigures


class ReportTrouble(NamedTuple):
    """Why there are no results: in a few words, the problem, and the remedy."""

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """The reports of one cluster: a manifest, or the reason for none."""

    manifest: Manifest | None = None
    trouble: ReportTrouble | None = None


class Day(NamedTuple):
    """An application's figures of one day, such as `2026-11-22`."""

    day: str
    application: str
    figures: ReportFigures


class BusyTransaction(NamedTuple):
    """A transactional id, and its figures in a range of days."""

    transactional_id: str
    application: str
    figures: ReportFigures


@dataclass(frozen=True, slots=True)
class Busiest:
    """The ids with the most transitions; `number` of all ids, `whole` if all were ranked."""

    items: Sequence[BusyTransaction] = ()
    number: int = 0
    whole: bool = True


class ManifestKey:
    """A manifest as a cache key; two manifests of one micro-batch are equal."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._is = (manifest.cluster, manifest.query, manifest.batch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManifestKey) and other._is == self._is

    def __hash__(self) -> int:
        return hash(self._is)
