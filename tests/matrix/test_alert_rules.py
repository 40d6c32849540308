"""Proves by promtool that Prometheus takes deploy/prometheus/rules.yml, that each alert fires after its time,
not before, and with the right words, and that none fires while all is well."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.matrix.prometheus import RULES, program

pytestmark = pytest.mark.matrix
_GROUPS: Any = yaml.safe_load(RULES.read_text())["groups"]
ALERTS: dict[str, Any] = {rule["alert"]: rule for group in _GROUPS for rule in group["rules"]}
TAIL = {"cluster": "prod", "collector": "transaction_state"}


class FiringCase(NamedTuple):
    """A series that makes an alert fire, and what the alert then says."""

    alert: str
    name: str
    labels: Mapping[str, str]
    #: As promtool reads them: `5x240` repeats 5 for an hour, a sample each 15 s.
    values: str
    summary: str
    #: Of the series and not of the alert.
    hidden: tuple[str, ...] = ()


def finding(alert: str, rule: str, summary: str, severity: str = "critical") -> FiringCase:
    labels = {"cluster": "prod", "rule": rule, "severity": severity}
    return FiringCase(alert, "fenceline_findings", labels, "2x240", summary, ("severity",))


CASES = [
    FiringCase(
        "FencelineBlind", "fenceline_judgement_age_seconds", {"cluster": "prod"}, "Inf " * 240,
        "Fenceline has not evaluated prod for over 30 s.",
    ),
    FiringCase(
        "FencelineCollectorFailing", "fenceline_collector_failing", TAIL, "1x240",
        "The collector transaction_state cannot poll prod.",
    ),
    FiringCase(
        "FencelineCollectorLate", "fenceline_collector_seen_seconds_ago", TAIL, "61x240",
        "The collector transaction_state has not seen prod for over a minute.",
    ),
    FiringCase(
        "FencelineTailBehind", "fenceline_collector_behind_records", TAIL, "2500000x240",
        "The tail transaction_state of prod is 2500000 records behind.",
    ),
    FiringCase(
        "FencelineBlindSpot", "fenceline_gaps", {"cluster": "prod", "source": "groups"}, "1x240",
        "A part of prod is not visible (groups).",
    ),
    FiringCase(
        "FencelineRecordsUndecoded", "fenceline_collector_undecoded_total", TAIL, "0+1x240",
        "The collector transaction_state of prod cannot decode records.",
    ),
    FiringCase(
        "FencelineChannelUnusable", "fenceline_channel_usable", {"channel": "pager"}, "0x240",
        "The notification channel pager is switched off.",
    ),
    FiringCase(
        "FencelineDeliveriesFailing", "fenceline_channel_failures", {"channel": "pager"}, "3x240",
        "The last 3 deliveries to the channel pager failed.",
    ),
    finding("TransactionStuck", "hanging", "Stuck transactions or partitions of prod: 2."),
    FiringCase(
        "LsoBlockedLong", "fenceline_lso_pinned_seconds_max", {"cluster": "prod"}, "960x240",
        "An LSO of prod has not moved for 16m 0s.",
    ),
    FiringCase(
        "GroupsBlocked", "fenceline_groups_blocked", {"cluster": "prod"}, "3x240",
        "BLOCKED consumer groups of prod: 3.",
    ),
    finding("ExactlyOnceViolated", "batch_lost", "prod: records are lost or duplicated (batch_lost)."),
    finding(
        "DataLossAhead", "data_loss_risk",
        "prod: records will be lost or duplicated soon (data_loss_risk).",
    ),
    finding(
        "ProducersFailing", "fencing_storm",
        "Producers of prod abort or fence each other (fencing_storm).",
    ),
    finding(
        "SparkQueryStopped", "query_failed",
        "Failed or blocked Spark queries of prod: 2 (query_failed).", "warning",
    ),
    FiringCase(
        "FlinkJobFailing", "fenceline_flink_runs", {"cluster": "prod", "state": "RESTARTING"}, "1x240",
        "Failing or restarting Flink jobs of prod: 1.", ("state",),
    ),
    FiringCase(
        "ConnectorTaskFailed", "fenceline_connector_tasks", {"cluster": "prod", "state": "FAILED"}, "1x240",
        "Failed connector tasks of prod: 1.",
    ),
]  # fmt: skip
#: What a healthy cluster reports.
HEALTHY = {
    'fenceline_build_info{version="1.0.0"}': "1x240",
    'fenceline_judgement_age_seconds{cluster="prod"}': "1x240",
    'fenceline_collector_failing{cluster="prod", collector="groups"}': "0x240",
    'fenceline_collector_seen_seconds_ago{cluster="prod", collector="groups"}': "2x240",
    # The audit job may run once a day.
    'fenceline_collector_seen_seconds_ago{cluster="prod", collector="audits"}': "3600x240",
    'fenceline_collector_behind_records{cluster="prod", collector="transaction_state"}': "500x240",
    'fenceline_collector_undecoded_total{cluster="prod", collector="transaction_state"}': "4x240",
    'fenceline_gaps{cluster="prod", source="groups"}': "0x240",
    'fenceline_channel_usable{channel="pager"}': "1x240",
    'fenceline_channel_failures{channel="pager"}': "1x240",
    'fenceline_lso_pinned_seconds_max{cluster="prod"}': "30x240",
    'fenceline_groups_blocked{cluster="prod"}': "0x240",
    'fenceline_findings{cluster="prod", rule="open_too_long", severity="info"}': "1x240",
    'fenceline_findings{cluster="prod", rule="batch_lost", severity="critical"}': "0x240",
    'fenceline_flink_runs{cluster="prod", state="RUNNING"}': "2x240",
    'fenceline_connector_tasks{cluster="prod", state="FAILED"}': "0x240",
}


def minutes(alert: str) -> int:
    """Return how long the condition of an alert must hold."""
    return int(ALERTS[alert].get("for", "0m").removesuffix("m"))


def written(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def run_promtool(folder: Path, series: Mapping[str, str], expected: Iterable[Mapping[str, Any]]) -> str:
    """Return what promtool finds wrong, "" for nothing."""
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "15s", "input_series": inputs, "alert_rule_test": list(expected)}
    document = {"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]}
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump(document))
    command = [program("promtool"), "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def expectation(alert: str, at_s: int, *firing: Mapping[str, Any]) -> dict[str, Any]:
    return {"alertname": alert, "eval_time": f"{at_s}s", "exp_alerts": list(firing)}


def test_promtool_accepts_the_rules() -> None:
    command = [program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(RULES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} | {"FencelineDown"} == ALERTS.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_after_its_time(case: FiringCase, tmp_path: Path) -> None:
    rule = ALERTS[case.alert]
    labels = {name: value for name, value in case.labels.items() if name not in case.hidden}
    annotations = {**rule["annotations"], "summary": case.summary}
    annotations["description"] = annotations["description"].replace(
        "{{ $labels.rule }}", labels.get("rule", "")
    )
    firing = {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": annotations}
    after_s = minutes(case.alert) * 60
    expected = [expectation(case.alert, after_s + 60, firing)]
    if after_s:
        expected.append(expectation(case.alert, after_s - 30))
    series = HEALTHY | {f"{case.name}{written(case.labels)}": case.values}
    assert run_promtool(tmp_path, series, expected) == ""


def test_no_alert_fires_while_all_is_well(tmp_path: Path) -> None:
    expected = [expectation(alert, 3000) for alert in ALERTS]
    assert run_promtool(tmp_path, HEALTHY, expected) == ""


def test_a_fenceline_without_metrics_is_down(tmp_path: Path) -> None:
    rule = ALERTS["FencelineDown"]
    firing = {"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}
    # The scrapes end after five minutes; Prometheus forgets a series without samples after five more.
    series = {'fenceline_build_info{version="1.0.0"}': "1x20 _x200"}
    expected = [expectation("FencelineDown", 300), expectation("FencelineDown", 1200, firing)]
    assert run_promtool(tmp_path, series, expected) == ""
