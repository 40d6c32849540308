"""Limit every table's rows to the clusters that the caller of a request may see."""

from contextvars import ContextVar
from typing import TypeVar

from django.db import models

M = TypeVar("M", bound=models.Model)
#: The keys of the clusters; None for all, as in a worker. The threads of a request share its value.
visible_clusters: ContextVar[frozenset[int] | None] = ContextVar("visible_clusters", default=None)


class ScopedManager(models.Manager[M]):
    """The rows of clusters that the caller may see; `path` leads from a row to its cluster's key."""

    path = "cluster_id"

    def get_queryset(self) -> models.QuerySet[M]:
        """Return the rows of visible clusters."""
        rows, visible = super().get_queryset(), visible_clusters.get()
        return rows if visible is None else rows.filter(**{f"{self.path}__in": visible})


class ClusterManager(ScopedManager[M]):
    """The manager of clusters."""

    path = "pk"


class ManagerOfQuery(ScopedManager[M]):
    """The manager of rows of a query."""

    path = "query__cluster_id"


class ManagerOfGroup(ScopedManager[M]):
    """The manager of rows of a group."""

    path = "group__cluster_id"


class ManagerOfFlinkJob(ScopedManager[M]):
    """The manager of rows of a Flink job."""

    path = "job__cluster_id"


class ManagerOfIncident(ScopedManager[M]):
    """The manager of rows of an incident."""

    path = "incident__cluster_id"


class ManagerOfAlert(ScopedManager[M]):
    """The manager of rows of an alert."""

    path = "alert__cluster_id"
