"""`/api/v1/exports`: a whole list as one file, with the filters of the list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from django.http import Http404, HttpRequest, HttpResponseBase
from ninja import Router

from dashboard.api.list_files import ExportedList, export_list
from dashboard.api.routers import (
    actions,
    alerts,
    applications,
    audit,
    channels,
    deliveries,
    events,
    findings,
    groups,
    incidents,
    partitions,
    queries,
    recoveries,
    silences,
    transactions,
    transitions,
)
from dashboard.api.routers.flow import flink
from dashboard.api.schemas import ShortListFilters

router = Router(tags=["exports"])
LISTS: Mapping[str, ExportedList] = {
    "actions": ExportedList(actions.list_actions, actions.ActionFilters, actions.ActionList),
    "alerts": ExportedList(alerts.list_alerts, alerts.AlertFilters, alerts.AlertList),
    "applications": ExportedList(
        applications.list_applications, applications.ApplicationFilters, applications.ApplicationList
    ),
    "audit": ExportedList(audit.list_audit, audit.AuditFilters, audit.AuditList),
    "channels": ExportedList(channels.list_channels, ShortListFilters, channels.ChannelList),
    "deliveries": ExportedList(
        deliveries.list_deliveries, deliveries.DeliveryFilters, deliveries.DeliveryList
    ),
    "events": ExportedList(events.list_events, events.EventFilters, events.EventList),
    "findings": ExportedList(findings.list_findings, findings.FindingFilters, findings.FindingList),
    "flink-jobs": ExportedList(flink.list_flink_jobs, flink.FlinkJobFilters, flink.FlinkJobList),
    "groups": ExportedList(groups.list_groups, groups.GroupFilters, groups.GroupList),
    "incidents": ExportedList(incidents.list_incidents, incidents.IncidentFilters, incidents.IncidentList),
    "partitions": ExportedList(
        partitions.list_partitions, partitions.PartitionFilters, partitions.PartitionList
    ),
    "queries": ExportedList(queries.list_queries, queries.QueryFilters, queries.QueryList),
    "recoveries": ExportedList(
        recoveries.list_recoveries, recoveries.RecoveryFilters, recoveries.RecoveryList
    ),
    "silences": ExportedList(silences.list_silences, silences.SilenceFilters, silences.SilenceList),
    "transactions": ExportedList(
        transactions.list_transactions, transactions.TransactionFilters, transactions.TransactionList
    ),
    "transitions": ExportedList(
        transitions.list_transitions, transitions.TransitionFilters, transitions.TransitionList
    ),
}


@router.get("/{noun}.{form}", summary="Download a whole list as CSV or JSON", response={200: None})
def download_list(request: HttpRequest, noun: str, form: Literal["csv", "json"]) -> HttpResponseBase:
    """Every item of the list `noun`, whatever its length, with the list's own parameters.

    CSV has a column for each field; objects and lists are JSON in their cell. A text that a spreadsheet
    would take for a formula begins with an apostrophe.
    """
    if noun not in LISTS:
        raise Http404(f"{noun}: no list; one of {', '.join(LISTS)}.")
    return export_list(request, LISTS[noun], noun, form)
