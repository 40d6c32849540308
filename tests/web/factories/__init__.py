"""Rows and values for tests of pages and API: `from tests.web import factories`."""

from tests.web.factories.actions import (
    HEALTHY,
    NOT_PREPARED,
    PREPARE,
    RELEASED,
    Event,
    action_follow_up,
    action_result,
    audit_entry,
    batch_subject,
    executed_action,
    fence_subject,
    marker_subject,
    plan,
    planned_action,
    refused_subject,
)
from tests.web.factories.alerts import (
    SECRET,
    TOKEN,
    alert,
    alert_change,
    channel,
    delivery,
    silence,
)
from tests.web.factories.clusters import (
    HOSTILE_IDS,
    LONG_ID,
    MINUTE_MS,
    cluster,
    collector,
    collectors,
    config_with_owners,
    gap,
    now_ms,
    owner,
    partition_collectors,
    raise_revision,
    tail_collectors,
    watched_cluster,
)
from tests.web.factories.findings import facts_of, finding, incident, incident_of
from tests.web.factories.flink import (
    FLINK_IDENT,
    committable,
    connector,
    flink_checkpoint,
    flink_job,
    flink_run,
)
from tests.web.factories.groups import added_offsets, blocked_offset, group, group_offset, spark_group_id
from tests.web.factories.histories import (
    TransactionHistory,
    action_transition,
    save_histories,
    takeover_history,
    transaction_histories,
)
from tests.web.factories.partitions import (
    lso_blocker,
    partition,
    replica,
    replica_producer,
)
from tests.web.factories.queries import (
    QUERY_ID,
    batch,
    batches,
    checkpoint_detail,
    coordinator_transactions,
    operator_state,
    query,
    query_run,
    sink_decision,
    sink_transactional_id,
    sink_transactions,
    source_offsets,
    state_chain,
    unfinished_batch,
)
from tests.web.factories.transactions import recovery, state_count, topic_tally, transaction
