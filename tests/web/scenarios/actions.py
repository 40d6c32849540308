"""Actions of every kind and state, and an audit log with every event."""

from typing import Any

from dashboard.models import Cluster
from fenceline.plans.plan import LIVES_MS, Act
from tests.web import factories


def busy_actions(of: Cluster) -> None:
    """Fill a cluster with actions of every kind and state."""
    factories.collectors(of, "actions")
    expired = factories.now_ms() - LIVES_MS - 60_000
    factories.executed_action(factories.plan(factories.marker_subject(), act=Act.ABORT_MARKER))
    factories.executed_action(
        factories.plan(
            factories.fence_subject(),
            factories.fence_subject("orders-1"),
            factories.refused_subject("orders-2", factories.PREPARE),
        ),
        "done",
        "stale",
        "skipped",
        state="partly",
    )
    factories.executed_action(
        factories.fence_subject("inventory-sync-stuck-3"), "failed", state="failed", follow_up=[]
    )
    factories.executed_action(
        factories.fence_subject("orders-gateway-2"), "stale", state="stale", follow_up=[]
    )
    factories.executed_action(
        factories.fence_subject("orders-gateway-3"), "unknown", state="unknown", follow_up=[]
    )
    factories.executed_action(state="executing", ended_ms=None, results=[], follow_up=[])
    factories.planned_action(factories.plan(made_ms=expired))
    factories.planned_action(
        factories.plan(
            factories.refused_subject("orders-gateway-5", factories.HEALTHY),
            warnings=("It fences a producer that may still be running.",),
        )
    )
    factories.planned_action(
        factories.plan(*(factories.fence_subject(f"orders-gateway-{n}") for n in range(12)))
    )
    factories.planned_action(
        factories.plan(
            factories.fence_subject(),
            warnings=("It fences a producer that may still be running: it wrote 4 s ago.",),
            forced=True,
            overridden=(factories.HEALTHY,),
        )
    )
    factories.planned_action()


_CHANGES: dict[factories.Event, dict[str, list[Any]]] = {
    factories.Event.CHANNEL_CREATED: {
        "kind": [None, "webhook"],
        "url": [None, "https://hooks.example.org/services/***"],
        "matchers": [None, 'team="Payments", cluster=~"prod.*"'],
        "group_by": [None, ["cluster", "team"]],
        "send_resolved": [None, True],
    },
    factories.Event.CHANNEL_CHANGED: {"min_severity": ["warning", "critical"], "group_wait_s": [None, 30.0]},
    factories.Event.CHANNEL_SECRET_ROTATED: {"secret": ["***", "***"]},
    factories.Event.CHANNEL_DISABLED: {"enabled": [True, False]},
    factories.Event.SILENCE_CREATED: {"reason": [None, "maintenance of the ledger " * 12]},
    factories.Event.USER_CHANGED: {"groups": [["viewer"], ["admin", "operator"]], "is_active": [True, False]},
    factories.Event.PASSWORD_CHANGED: {"password": ["***", "***"]},
    factories.Event.ROLE_CHANGED: {
        "permissions": [["dashboard.add_silence"], [f"dashboard.p{n}" for n in range(12)]]
    },
}


def busy_audit_log() -> None:
    """Make a row of every event, and rows whose names are hostile, long or missing."""
    for event in factories.Event:
        factories.audit_entry(event, changes=_CHANGES.get(event, {}))
    factories.audit_entry(
        factories.Event.SIGN_IN_FAILED,
        actor="",
        subject_name="",
        address="2001:db8:0:7:1234:5678:9abc:def0",
        count=1_234,
    )
    factories.audit_entry(
        factories.Event.TOKEN_REVOKED, actor="manage.py revoke_token", via="command", address=None
    )
    factories.audit_entry(factories.Event.CHANNEL_DISABLED, actor="", via="system", address=None)
    for raw in (*factories.HOSTILE_IDS, factories.LONG_ID):
        name = raw.decode("utf-8", "replace").replace("\0", "")[:200]
        factories.audit_entry(actor=name, subject_name=name, changes={"name": [name, name[::-1]]})
