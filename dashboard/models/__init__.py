"""The tables. Observed state is written by the stores and the evaluator alone, and read through `queries`.

Instants that come from Kafka, or are compared with it, are integers of milliseconds (`_ms`): the hot path
writes 100,000 of them a second and formats none. Instants of our own are timestamps (`_at`), so that they can
be compared with the database's clock.

The cluster of a table has no index of its own where a unique key begins with it.
"""

from __future__ import annotations

from dashboard.models.access import ClusterLimit, ExternalIdentity, Token
from dashboard.models.acting import Action, ActionRecord
from dashboard.models.alerting import Alert, AlertChange, Channel, Delivery, Silence
from dashboard.models.audit import SIGN_INS, AuditEntry
from dashboard.models.audited_pipelines import AuditViolationRecord
from dashboard.models.collecting import Cluster, Collector, GapRecord, Position
from dashboard.models.engines import ConnectorRecord, FlinkRunRecord
from dashboard.models.flink import FlinkCheckpointRecord, FlinkJob
from dashboard.models.flow import TopicTally
from dashboard.models.groups import (
    AddedOffsetsRecord,
    CommitRecord,
    DroppedOffset,
    Group,
    GroupOffset,
    GroupRecord,
)
from dashboard.models.incidents import Incident, IncidentEvent, IncidentFinding, IncidentRevision
from dashboard.models.judging import FindingRecord
from dashboard.models.partitions import DeletedPartition, PartitionRecord, PinRecord, ReplicaLook
from dashboard.models.queries import Batch, OperatorStateRecord, Query, Run, SinkDecision
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
    Transaction,
    TransitionRecord,
)
