"""The output of the history job: the manifest, which lists the valid files, and the figures in these.

The job (`spark_pipeline.history`) writes below its output, for each cluster:

    cluster=NAME/log/000000000012.json           a manifest for each micro-batch; the newest one counts
    cluster=NAME/parts/part=000000000012-1f3a…/table=TABLE/day=2026-11-22/*.parquet

A part is the result of one micro-batch, or of several merged ones. Only parts in the newest manifest are
valid: others are of failed attempts, or were merged. Rows of `transitions` with the same partition and offset
are one transition, and the row with the largest `known_to` is its present state. Rows of `ids` and
`applications` with the same day and name must be summed; counts below zero take back a revised verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from fenceline.compat import SLOTS
from fenceline.decode.typed import read_versioned
from fenceline.facts import ABORTS, TransitionKind
from fenceline.series.histograms import Histogram, merge_histograms

#: The layout's version; a newer Fenceline has a larger number.
FORMAT = 1
TRANSITIONS, IDS, APPLICATIONS, STATE = "transitions", "ids", "applications", "state"
#: A micro-batch's report to its driver: the position in each partition, and undecodable records.
PROGRESS, STRANGE = "progress", "strange"
_DIGITS = 12


class ReportPart(NamedTuple):
    """A folder of Parquet files; `part_folder` is its path."""

    name: str
    #: How often its rows were merged: 0 for one micro-batch.
    level: int
    #: The first and the last day of its rows, `2026-11-22`; "" without any.
    first_day: str
    last_day: str


@dataclass(frozen=True, **SLOTS)
class Manifest:
    """All of the job's results after one micro-batch."""

    cluster: str
    topic: str
    #: The streaming query's own id, from its checkpoint.
    query: str
    batch: int
    #: The instant of the micro-batch, by the driver's clock.
    at_ms: int
    #: Next offset by partition.
    positions: Mapping[int, int] = field(default_factory=dict)
    #: By partition: the first offset after the last stretch that compaction removed.
    holes: Mapping[int, int] = field(default_factory=dict)
    records: int = 0
    #: Number of undecodable records by reason; for each the first one: partition, offset, problem.
    undecoded: Mapping[str, int] = field(default_factory=dict)
    strange: Mapping[str, tuple[int, int, str]] = field(default_factory=dict)
    parts: tuple[ReportPart, ...] = ()
    #: The parts with the valid rows of `state`.
    state: tuple[str, ...] = ()
    #: Merged parts that the next merge deletes: a reader may still use them.
    retired: tuple[str, ...] = ()


def folder_of(cluster: str) -> str:
    """Return the folder of a cluster below the job's output."""
    return f"cluster={cluster}"


def manifest_name(number: int) -> str:
    """Return the file name of a micro-batch's or a run's manifest; names sort like their numbers."""
    return f"{number:0{_DIGITS}}.json"


def part_name(number: int, run: str) -> str:
    """Return the name of a part of a micro-batch or a run; `run` distinguishes attempts."""
    return f"{number:0{_DIGITS}}-{run}"


def part_folder(name: str) -> str:
    """Return the folder of a part below `parts/`, in Hive's spelling, so that Spark reads many at once."""
    return f"part={name}"


def manifest_number(name: str) -> int | None:
    """Return the number in a manifest's file name, None for other files."""
    stem, dot, ending = name.partition(".")
    return int(stem) if dot and ending == "json" and len(stem) >= _DIGITS and stem.isdecimal() else None


def write_manifest(manifest: Manifest) -> str:
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1)


def read_manifest(text: str) -> Manifest:
    """Parse a manifest. Raises TornFile, and NewerFile for a later layout."""
    return read_versioned(text, Manifest, known=FORMAT, what="manifest of the history job")


@dataclass(**SLOTS)
class ReportFigures:
    """What happened to an id, an application or a cluster in a range of time."""

    counts: Mapping[TransitionKind, int] = field(default_factory=dict)
    #: Number of exhausted epochs; a producer id has 32,767.
    epochs: int = 0
    #: From begin to decision, and from decision to the last marker, of commits.
    open_times: Histogram = field(default_factory=dict)
    marker_times: Histogram = field(default_factory=dict)

    @property
    def commits(self) -> int:
        return self.counts.get(TransitionKind.COMMIT, 0)

    @property
    def aborts(self) -> int:
        """Return the number of transactions that ended without their records, for any cause."""
        return sum(self.counts.get(kind, 0) for kind in ABORTS)


def sum_figures(parts: Iterable[ReportFigures]) -> ReportFigures:
    """Return the sum of figures, without those that become zero."""
    held = list(parts)
    counts: dict[TransitionKind, int] = {}
    for part in held:
        for kind, n in part.counts.items():
            counts[kind] = counts.get(kind, 0) + n
    return ReportFigures(
        {kind: n for kind, n in counts.items() if n},
        sum(part.epochs for part in held),
        merge_histograms(part.open_times for part in held),
        merge_histograms(part.marker_times for part in held),
    )
