"""The tables. Only the stores and the evaluator write observed state; the `queries` modules read it.

Instants from Kafka, or compared with Kafka's, are integers of milliseconds (`_ms`): the hot path writes
100,000 of them a second without formatting. Fenceline's own instants are timestamps (`_at`), to compare them
with the database's clock.

A table's `cluster` column has no index of its own if a unique key begins with it.
"""

from dashboard.models.access import (
    SIGN_INS,
    Action,
    ActionRecord,
    AuditEntry,
    ClusterLimit,
    ExternalIdentity,
    Token,
)
from dashboard.models.alerting import Alert, AlertChange, Channel, Delivery, Silence
from dashboard.models.collecting import (
    Cluster,
    Collector,
    GapRecord,
    ObservedSpan,
    Position,
    Series,
    SeriesChunk,
)
from dashboard.models.engines import (
    Batch,
    ConnectorRecord,
    FlinkCheckpointRecord,
    FlinkJob,
    FlinkRunRecord,
    OperatorStateRecord,
    Query,
    Run,
    SinkDecision,
    state_at,
)
from dashboard.models.groups import (
    AddedOffsetsRecord,
    CommitRecord,
    DroppedOffset,
    Group,
    GroupOffset,
    GroupRecord,
)
from dashboard.models.incidents import (
    AbortedCommit,
    AuditViolationRecord,
    FindingRecord,
    Incident,
    IncidentEvent,
    IncidentFinding,
    IncidentRevision,
    Recovery,
)
from dashboard.models.partitions import DeletedPartition, PartitionRecord, PinRecord, ReplicaLook
from dashboard.models.transactions import (
    IDLE,
    IS_IDLE,
    IS_OPEN,
    NAME,
    Beginning,
    CoordinatorMoveRecord,
    Ordered,
    Recent,
    StateCount,
    Tally,
    TopicTally,
    Transaction,
    TransitionRecord,
)
