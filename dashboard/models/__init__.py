"""The tables. Only the stores and the evaluator write observed state; the `queries` modules read it.

Instants from Kafka, or compared with Kafka's, are integers of milliseconds (`_ms`): the hot path writes
100,000 of them a second without formatting. Fenceline's own instants are timestamps (`_at`), to compare them
with the database's clock.

A table's `cluster` column has no index of its own if a unique key begins with it.
"""

from dashboard.models.access import SIGN_INS, AuditEntry, ClusterLimit, ExternalIdentity, Token
from dashboard.models.acting import Action, ActionRecord
from dashboard.models.alerting import Alert, AlertChange, Channel, Delivery, Silence
from dashboard.models.collecting import Cluster, Collector, GapRecord, Position
from dashboard.models.engines import ConnectorRecord, FlinkCheckpointRecord, FlinkJob, FlinkRunRecord
from dashboard.models.groups import (
    AddedOffsetsRecord,
    CommitRecord,
    DroppedOffset,
    Group,
    GroupOffset,
    GroupRecord,
)
from dashboard.models.incidents import (
    AuditViolationRecord,
    FindingRecord,
    Incident,
    IncidentEvent,
    IncidentFinding,
    IncidentRevision,
)
from dashboard.models.partitions import DeletedPartition, PartitionRecord, PinRecord, ReplicaLook
from dashboard.models.queries import Batch, OperatorStateRecord, Query, Run, SinkDecision, state_at
from dashboard.models.recoveries import AbortedCommit, Recovery
from dashboard.models.series import ObservedSpan, Series, SeriesChunk
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
