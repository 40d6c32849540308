"""The audit job's output for each pipeline: each batch's input, output, commits and readable records.

The job (`spark_pipeline.audit`) writes below `OUTPUT/cluster=NAME/audits/pipeline=PIPELINE`:

    log/000000000012.json                  a manifest for each run; the newest one counts
    parts/part=…/table=TABLE/*.parquet

Tables: `partitions` (by counts, each batch in each output partition), `losses` (ranges of the input) and
`duplicates` (by keys, ranges of the output). If input or output is a table, which has no offsets: `loss_keys`
and `duplicate_keys`. By counts each run adds a part, by keys its part replaces all others. An unavailable
count is None: it is never a guess, and nothing is proved with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import NamedTuple, Optional

from fenceline.compat import SLOTS, StrEnum
from fenceline.decode.typed import read_versioned

#: The layout's version; a newer Fenceline has a larger number.
FORMAT = 1
PARTITIONS, LOSSES, DUPLICATES = "partitions", "losses", "duplicates"
LOSS_KEYS, DUPLICATE_KEYS = "loss_keys", "duplicate_keys"
#: Maximum batches and ranges of each kind to keep.
_MOST = 20


class AuditMode(StrEnum):
    """How records were compared: by their number, or by key."""

    COUNTS = "counts"
    KEYS = "keys"


class AuditVerdict(StrEnum):
    """An audit's conclusion about a batch or a pipeline."""

    #: Every input record is readable in the output once, or was dropped by the query.
    PROVED = "proved"
    #: It is prepared: its transactions are not committed yet.
    PREPARED = "prepared"
    #: A part could not be observed; an obstacle names it.
    UNPROVED = "unproved"
    #: Records are missing or duplicated.
    VIOLATED = "violated"


class ObstacleKind(StrEnum):
    """Why a proof is impossible."""

    COMPACTED = "compacted"
    RETENTION = "retention"
    FOREIGN_RECORDS = "foreign_records"
    SHARED_OUTPUT = "shared_output"
    TOPIC_RECREATED = "topic_recreated"
    LEDGER_MISSING = "ledger_missing"
    INPUT_UNKNOWN = "input_unknown"
    UNREADABLE = "unreadable"
    KEY_MISSING = "key_missing"


class AuditObstacle(NamedTuple):
    kind: ObstacleKind
    #: A topic, a partition (`orders-3`), or a file of the checkpoint.
    where: str
    #: The finding there and its consequence, in words for an operator.
    detail: str
    consequence: str


class AuditedRange(NamedTuple):
    """Records of one partition, from the first offset to before the second."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int


class AuditedKey(NamedTuple):
    """Rows of a table with one key, which identifies them because a table has no offsets."""

    table: str
    key: str
    records: int


class AuditedMarker(NamedTuple):
    """A commit marker of a batch in one partition of its output."""

    topic: str
    partition: int
    offset: int


class AuditedPosition(NamedTuple):
    """The audited position in a partition of the output: the job continues here."""

    topic: str
    partition: int
    #: Kafka's own id of the topic; "" if brokers do not report it.
    topic_id: str
    #: The next offset to audit.
    offset: int
    #: Audited transactions that end after it: producer id, offset of the marker.
    spanning: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, **SLOTS)
class AuditedBatch:
    """One micro-batch. Unknown numbers of records are None."""

    batch_id: int
    verdict: AuditVerdict
    #: The instant of its decision by the driver's clock; None if no ledger has it.
    at_ms: Optional[int] = None
    input: Optional[int] = None
    #: From the query's progress.
    dropped: Optional[int] = None
    written: Optional[int] = None
    #: In transactions with a commit marker.
    committed: Optional[int] = None
    #: Below the last stable offset.
    readable: Optional[int] = None
    duplicated: Optional[int] = None
    missing: Optional[int] = None
    #: Input ranges that are missing in the output, and duplicated output ranges: the first of each.
    losses: tuple[AuditedRange, ...] = ()
    duplicates: tuple[AuditedRange, ...] = ()
    #: The first commit markers of its transactions.
    markers: tuple[AuditedMarker, ...] = ()


@dataclass(frozen=True, **SLOTS)
class AuditManifest:
    """All of the job's results after one run."""

    cluster: str
    #: Its name in the output's folder: the query's name, or source and target topics.
    pipeline: str
    mode: AuditMode
    #: Run numbers begin with 1.
    run: int
    #: The instant of the run, by the driver's clock.
    at_ms: int
    #: The streaming query's own id, "" for a pipeline without a Spark query.
    query_id: str = ""
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    #: The first audited batch, and the last one up to which every batch is proved; None without any.
    first_batch: Optional[int] = None
    proved_through: Optional[int] = None
    #: Since the first audited batch.
    input: int = 0
    readable: int = 0
    duplicated: int = 0
    missing: int = 0
    #: The newest batches, the newest first.
    batches: tuple[AuditedBatch, ...] = ()
    obstacles: tuple[AuditObstacle, ...] = ()
    #: Names of the valid folders below `parts/`.
    parts: tuple[str, ...] = ()
    #: The next batch to audit; None before the first one.
    next_batch: Optional[int] = None
    positions: tuple[AuditedPosition, ...] = ()
    #: By keys: the compared input records as an expression of Spark SQL, "" for all.
    condition: str = ""
    #: By keys: the compared input, the first missing ranges, and the first duplicated ranges of the output.
    compared: tuple[AuditedRange, ...] = ()
    losses: tuple[AuditedRange, ...] = ()
    duplicates: tuple[AuditedRange, ...] = ()
    #: By keys, for tables: the first missing and duplicated keys. Keys are payload: no page shows them.
    loss_keys: tuple[AuditedKey, ...] = ()
    duplicate_keys: tuple[AuditedKey, ...] = ()

    @property
    def verdict(self) -> AuditVerdict:
        """Return the verdict on the whole pipeline, as far as it was audited."""
        if self.duplicated or self.missing:
            return AuditVerdict.VIOLATED
        by_keys = self.mode is AuditMode.KEYS
        compared = self.compared or self.input if by_keys else self.proved_through is not None
        if self.obstacles or not compared:
            return AuditVerdict.UNPROVED
        return AuditVerdict.PROVED


def is_table(name: str) -> bool:
    """Return whether a name in `sources` or `targets` is a table's, `FORMAT:URL`; no topic has a colon."""
    return ":" in name


def audits_folder(cluster: str) -> str:
    """Return the folder of a cluster's audits below the job's output."""
    return f"cluster={cluster}/audits"


def audit_folder(cluster: str, pipeline: str) -> str:
    """Return the folder of a pipeline's audits below the job's output."""
    return f"{audits_folder(cluster)}/pipeline={pipeline}"


def write_audit(manifest: AuditManifest) -> str:
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1)


def read_audit(text: str) -> AuditManifest:
    """Parse a manifest. Raises TornFile, and NewerFile for a later layout."""
    return read_versioned(text, AuditManifest, known=FORMAT, what="manifest of the audit job")


@dataclass(frozen=True, **SLOTS)
class AuditViolation:
    """A pipeline whose output has missing or duplicated records."""

    pipeline: str
    mode: AuditMode
    #: The instant of the oldest violated batch's decision, else of the audit.
    since_ms: int
    missing: int
    duplicated: int
    #: The streaming query's own id, "" for a pipeline without a Spark query.
    query_id: str = ""
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    #: By counts: the first violated batches that the manifest still lists.
    batches: tuple[int, ...] = ()
    #: The first missing input ranges, and the first duplicated output ranges.
    losses: tuple[AuditedRange, ...] = ()
    duplicates: tuple[AuditedRange, ...] = ()
    #: Subjects of the known streaming queries with this id.
    queries: tuple[str, ...] = ()


def find_violation(pipeline: str, audit: AuditManifest) -> AuditViolation | None:
    """Return a pipeline's missing and duplicated records, by the name of its folder; None without any."""
    if audit.verdict is not AuditVerdict.VIOLATED:
        return None
    # Manifests begin with their newest batch.
    batches = [batch for batch in reversed(audit.batches) if batch.verdict is AuditVerdict.VIOLATED]
    since = [batch.at_ms for batch in batches if batch.at_ms is not None]
    return AuditViolation(
        pipeline,
        audit.mode,
        min(since, default=audit.at_ms),
        audit.missing,
        audit.duplicated,
        audit.query_id,
        audit.sources,
        audit.targets,
        tuple(batch.batch_id for batch in batches[:_MOST]),
        _first(audit.losses, *(batch.losses for batch in batches)),
        _first(audit.duplicates, *(batch.duplicates for batch in batches)),
    )


def _first(*ranges: Iterable[AuditedRange]) -> tuple[AuditedRange, ...]:
    return tuple(islice((range_ for of_batch in ranges for range_ in of_batch), _MOST))
