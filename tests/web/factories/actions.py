"""Plans, actions in every state and rows of the audit log, for pages and API to show."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dashboard.actions import store as action_store
from dashboard.models import Action, AuditEntry
from dashboard.system.access import ROLES, Actor
from fenceline.plans.plan import Act, Bound, Effect, Plan, PlanStep, Refusal, RefusalReason, SubjectPlan
from tests.web.factories.clusters import now_ms

ADA = Actor("ada", "page", ROLES["admin"])
HEALTHY = Refusal(
    RefusalReason.HEALTHY,
    "It is within its limit and wrote 4 s ago: its producer lives. Wait for it, or stop that producer.",
    True,
)
PREPARE = Refusal(RefusalReason.PREPARE, "Its coordinator has decided: look at the leader of payments-0.")
NOT_PREPARED = Refusal(
    RefusalReason.NOT_PREPARED, "No decision to commit it is in the ledger: roll it back instead."
)


RELEASED = "At least 1,707 records behind the LSO of payments-0 become readable."


def fence_subject(name: str = "payments-7") -> SubjectPlan:
    """Return what fencing an abandoned transaction would do."""
    lost = "At least 63 records it wrote are aborted: payments-0 from offset 48,211 to 48,273."
    return SubjectPlan(
        f"transaction:{name}",
        name,
        {"transactional_id": name, "producer_id": 4017, "producer_epoch": 3, "started_ms": 1_795_000_000_000},
        (
            PlanStep(
                "InitProducerId", f"To the coordinator of {name} (broker 2), with its own timeout of 10 min."
            ),
        ),
        (
            Effect("records_released", 1_707, RELEASED, Bound.AT_LEAST),
            Effect("groups_released", 1, "1 group is blocked there now and can read on: billing."),
            Effect("records_lost", 63, lost, Bound.AT_LEAST),
            Effect("producer_fenced", None, "Producer id 4017, epoch 3 is fenced."),
        ),
        held=(("payments", 0, 48_211, 49_981, 49_981), ("payments", 1, 7_000, None, None)),
        waiting=("billing", "payments_ledger"),
    )


def refused_subject(name: str, *refusals: Refusal) -> SubjectPlan:
    """Return a subject for which every action is refused."""
    return SubjectPlan(f"transaction:{name}", name, {"transactional_id": name}, refusals=refusals)


def marker_subject(start_offset: int = 48_211) -> SubjectPlan:
    """Return what an abort marker would do."""
    seen = {"topic": "payments", "partition": 0, "producer_id": 4017, "start_offset": start_offset}
    words = "To the leader of payments-0 (broker 1): ABORT for producer id 4017, epoch 3."
    return SubjectPlan(
        "partition:payments-0",
        f"payments-0 at offset {start_offset:,}",
        seen,
        (PlanStep("WriteTxnMarkers", words),),
        (Effect("records_released", 1_707, RELEASED, Bound.AT_LEAST),),
        held=(("payments", 0, start_offset, 49_981, 49_981),),
        waiting=("billing",),
    )


def batch_subject(ident: str, number: int, *refusals: Refusal) -> SubjectPlan:
    """Return what finishing a batch would do, or why it may not be done."""
    seen = {"query": ident, "batch_id": number, "transactions": [["orders-3f9c11d2-p0-g1-b1-s0", 1, 2, 3]]}
    steps = (
        PlanStep(
            "EndTxn", "commit, for 3 transactions that are still open with the same producer id and epoch"
        ),
        PlanStep("ledger", f"create {number}.0.done"),
    )
    return SubjectPlan(
        f"query:{ident}",
        f"orders_enrich, batch {number:,}",
        seen,
        () if refusals else steps,
        refusals=refusals,
    )


def plan(*subjects: SubjectPlan, act: Act = Act.FENCE, **fields: Any) -> Plan:
    """Return a plan that was made just now, but for `fields`."""
    each = subjects or (fence_subject(),)
    confirm = each[0].title if len(each) == 1 else f"prod {len(each)}"
    return replace(Plan(act, "prod", now_ms(), confirm, each), **fields)


def planned_action(of: Plan | SubjectPlan | None = None, **fields: Any) -> Action:
    """Return the audit row of a plan, or of one for a subject, but for `fields`."""
    row = action_store.save_plan(_plan_of(of), ADA)
    Action.objects.filter(pk=row.pk).update(**fields)
    row.refresh_from_db()
    return row


def _plan_of(of: Plan | SubjectPlan | None) -> Plan:
    return of if isinstance(of, Plan) else plan(*([of] if of else []))


def executed_action(
    of: Plan | SubjectPlan | None = None, *outcomes: str, state: str = "done", **fields: Any
) -> Action:
    """Return the audit row of a plan that was executed: how each subject ended, and the whole."""
    made = _plan_of(of)
    now = now_ms()
    results = [
        action_result(each.subject, outcome, now)
        for each, outcome in zip(made.subjects, outcomes or ["done"] * len(made.subjects), strict=True)
    ]
    defaults: dict[str, Any] = {
        "state": state,
        "executed_by": "ada",
        "reason": "ticket 4411: billing stopped",
        "confirmed_at": datetime.fromtimestamp((now - 4_000) / 1_000, UTC),
        "ended_ms": now - 3_000,
        "results": results,
        "follow_up": action_follow_up(now),
    }
    return planned_action(made, **(defaults | fields))


def action_result(subject: str, outcome: str, now_ms: int) -> dict[str, Any]:
    """Return what came of one subject, as `dashboard.actions` keeps it."""
    words = {
        "done": "its coordinator fenced epoch 3 → 4 and aborted what was open",
        "stale": "the plan is outdated: epoch 3 → 5; nothing was asked for it",
        "failed": "the cluster refused: WRITE on the transactional id is missing",
        "unknown": "its worker died after it had asked, and nobody can tell what came of it",
        "skipped": "refused in the plan: its coordinator has decided",
    }
    code = {"done": 0, "failed": 53}.get(outcome)
    part = {"where": subject.partition(":")[2], "code": code, "words": f"InitProducerId: {outcome}"}
    return {
        "subject": subject,
        "outcome": outcome,
        "words": words[outcome],
        "parts": [] if outcome == "skipped" else [part],
        "started_ms": now_ms - 3_600,
        "ended_ms": now_ms - 3_100,
    }


def action_follow_up(now_ms: int) -> Sequence[dict[str, Any]]:
    """Return what was observed afterwards."""
    return [
        {"words": "LSO of payments-0 moved 48,211 → 49,981", "at_ms": now_ms - 2_700, "kind": "lso"},
        {"words": "group billing resumed after 1.3 s", "at_ms": now_ms - 1_700, "kind": "group"},
    ]


Event = AuditEntry.Event


def audit_entry(event: Event = Event.CHANNEL_CHANGED, **fields: Any) -> AuditEntry:
    """Return an audit row."""
    usual = {"actor": "ada", "via": "page", "address": "203.0.113.9", "subject_name": "pager"}
    return AuditEntry.objects.create(event=event, **(usual | fields))
