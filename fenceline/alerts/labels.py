"""An alert's labels, its annotations, and the page for its messages. Pure."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from fenceline.formatting import fit_name
from fenceline.kafka.applications import application_of
from fenceline.owners import Owner

#: Longer values are cut, and end in a part of their hash, so that two long names stay distinct.
LONGEST = 300
#: By the kind of a subject: the label with its name.
_NAMES = {
    "transaction": "transactional_id",
    "group": "group",
    "query": "query",
    "application": "application",
    "collector": "collector",
    "pipeline": "pipeline",
    "flink_job": "flink_job",
}
_PAGES = {"transaction": "transactions", "group": "groups", "query": "queries", "flink_job": "flink-jobs"}
#: Names that no path can contain lead to the rule's page, which every alert has.
_ODD = frozenset({".", "..", ""})


class FindingText(NamedTuple):
    rule: str
    cluster: str
    subject: str
    severity: str
    summary: str
    evidence: str
    next_step: str
    #: The name of a streaming query, whose subject has its id; "" for other subjects.
    query_name: str = ""
    #: The number of the finding's incident, 0 for none.
    incident: int = 0


def labels_of(finding: FindingText, owner: Owner | None) -> dict[str, str]:
    """Return the labels for silences, channels and groups, without empty ones."""
    kind, _, name = finding.subject.partition(":")
    labels = {
        "alertname": finding.rule,
        "cluster": finding.cluster,
        "severity": finding.severity,
        "subject": finding.subject,
        "subject_kind": kind,
        **_named(kind, name),
        "query_name": finding.query_name,
        "incident": str(finding.incident or ""),
    }
    if owner is not None:
        labels |= {"team": owner.team, "contact": owner.contact, "runbook": owner.runbook}
    return {label: fit_name(value, LONGEST) for label, value in labels.items() if value}


def readable_name(subject: str, labels: Mapping[str, str]) -> str:
    """Return the name that people use for a subject: a streaming query's name instead of its id."""
    kind, _, name = subject.partition(":")
    return (labels.get("query_name", "") if kind == "query" else "") or name or kind


def annotations_of(finding: FindingText, owner: Owner | None) -> dict[str, str]:
    """Return the texts that only people read."""
    texts = {"summary": finding.summary, "evidence": finding.evidence, "next_step": finding.next_step}
    if owner is not None:
        texts |= {"contact": owner.contact, "runbook": owner.runbook}
    return {name: value for name, value in texts.items() if value}


def page_of(labels: Mapping[str, str], external_url: str) -> str:
    """Return the address of an alert's subject from its labels; else of its rule."""
    kind, cluster = labels.get("subject_kind", ""), quote(labels.get("cluster", ""), safe="")
    if kind == "partition" and "topic" in labels:
        return f"{external_url}/partitions/{cluster}/{quote(labels['topic'], safe='')}/{labels['partition']}"
    name = labels.get(_NAMES.get(kind, ""), "")
    plain = len(name) < LONGEST and not _ODD & set(name.replace("\\", "/").split("/"))
    if kind == "pipeline":
        return f"{external_url}/pipelines?cluster={cluster}#audit-{cluster}-{quote(name, safe='')}"
    if kind in _PAGES and plain:
        return f"{external_url}/{_PAGES[kind]}/{cluster}/{quote(name, safe='')}"
    return f"{external_url}/rules/{quote(labels.get('alertname', ''), safe='')}"


def _named(kind: str, name: str) -> dict[str, str]:
    if kind == "partition":
        topic, dash, number = name.rpartition("-")
        is_one = topic and dash and number.isascii() and number.isdigit()
        return {"topic": topic, "partition": number} if is_one else {}
    labels = {_NAMES[kind]: name} if kind in _NAMES else {}
    if kind == "transaction":
        labels["application"] = application_of(name).application
    return labels
