"""Alerts, channels, deliveries and silences of every kind."""

from datetime import UTC, datetime

from dashboard.models import Alert, Cluster
from tests.web import factories


def busy_alerts(of: Cluster) -> None:
    """Make everything once: each state, each reason, each kind of row."""
    # Nothing may be sent there: a test of it says so, and asks nobody.
    ops = factories.channel("ops", url=f"http://127.0.0.1:9/services/{factories.TOKEN}")
    broken = factories.channel(
        "pager",
        kind="apprise",
        url=f"slack://{factories.TOKEN}/{factories.TOKEN}",
        secret="",
        failures=3,
        min_severity="critical",
    )
    factories.channel(
        "old alertmanager",
        kind="alertmanager",
        url="http://am.example.org:9093",
        secret="",
        enabled=False,
        disabled_at=datetime.now(UTC),
        disabled_why="10 messages in a row were not taken, the last one with: connection refused.",
        matchers=[["team", "=", "Payments"], ["cluster", "=~", "prod.*"]],
    )
    loud = factories.alert(of, "transaction:payments-7", labels={"team": "Payments"})
    held = {"firing": [bytes(loud.fingerprint).hex()], "resolved": []}
    told = factories.delivery(ops, held=held)
    failed = factories.delivery(broken, "failed", message_id="msg_2", held=held)
    Alert.objects.filter(pk=loud.pk).update(
        told=[[ops.pk, told.pk, factories.now_ms() - 9 * factories.MINUTE_MS]]
    )
    factories.alert_change(loud, [ops.pk, "delivery", told.pk], [broken.pk, "delivery", failed.pk])
    factories.delivery(ops, "pending", message_id="msg_3", held=held, attempts=4)
    factories.delivery(ops, origin="test", message_id="msg_4", reason="test")
    active = factories.silence()
    quiet = factories.alert(
        of,
        "group:billing",
        rule="group_stalled",
        severity="warning",
        quiet=[["silenced", f"#{active.pk}", "by ada until 12:04:07 UTC: maintenance of the ledger"]],
    )
    factories.alert_change(quiet, [ops.pk, "quiet", "silenced by #1"])
    factories.alert(
        of,
        "partition:payments-0",
        rule="lso_pinned",
        severity="warning",
        quiet=[["inhibited", f"#{loud.pk}", "by the alert of transaction payments-7: covered by incident 7"]],
    )
    factories.alert(
        of, "transaction:inventory-sync-stuck-3", flapping_ms=factories.now_ms() - factories.MINUTE_MS
    )
    factories.alert(
        of, "transaction:orders-1", "pending", quiet=[["pending", "", "found in 1 of 2 complete ticks"]]
    )
    over = factories.alert(of, "transaction:payments-8", "resolved")
    factories.alert_change(over, [ops.pk, "delivery", told.pk], new="resolved")
    _alerts_of_hostile_ids(of)
    factories.silence(starts_s=3_600, ends_s=7_200, reason="upgrade")
    factories.silence(starts_s=-7_200, ends_s=-3_600, ended_by="bob")


def _alerts_of_hostile_ids(of: Cluster) -> None:
    for raw in factories.HOSTILE_IDS:
        factories.alert(
            of, f"transaction:{raw.decode(errors='backslashreplace')}".replace("\0", ""), severity="info"
        )
