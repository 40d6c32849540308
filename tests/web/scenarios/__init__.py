"""Whole situations for tests of pages and API: `from tests.web import scenarios`."""

from tests.web.scenarios.actions import busy_actions, busy_audit_log
from tests.web.scenarios.alerts import busy_alerts
from tests.web.scenarios.flink import busy_flink_jobs, flink_job_of_every_fate, job_of_older_sink
from tests.web.scenarios.flow import busy_flow, large_flow
from tests.web.scenarios.incidents import open_incidents, thirty_incidents
from tests.web.scenarios.partitions import busy_partitions
from tests.web.scenarios.queries import (
    abandoned_query,
    busy_queries,
    source_partitions,
)
from tests.web.scenarios.transactions import busy_history, busy_transactions, day_of_history
