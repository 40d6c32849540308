"""The names of rules on pages. Pure."""

from collections.abc import Mapping

#: Rules whose words differ from their name.
_LABELS: Mapping[str, str] = {
    "aborted_under_commit": "committed without lost records",
    "audit_violated": "records missing or duplicated",
    "flink_commit_lost": "Flink commit lost",
    "flink_commit_pending": "Flink commit pending",
    "flink_job": "Flink job",
    "group_stalled": "group blocked",
    "id_explosion": "transactional id churn",
    "lso_pinned": "partition blocked",
}

#: Rules whose findings the headline of their subject's page states.
STATED_RULES = frozenset(
    {
        "batch_prepared", "checkpoint_unreadable", "coordinator_overdue", "group_stalled", "hanging",
        "lso_pinned", "offsets_unstable", "open_too_long", "query_blocked", "query_failed",
        "stuck_in_prepare",
    }
)  # fmt: skip


def rule_label(name: str) -> str:
    """Return a rule's name as words; for any other name its parts."""
    return _LABELS.get(name, name.replace("_", " "))
