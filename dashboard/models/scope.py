"""Which clusters the caller of a request may see: a row of another one is in no answer, whoever reads it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TypeVar

from django.db import models

M = TypeVar("M", bound=models.Model)
#: The numbers of the clusters; None for all, as in a worker. Threads that answer a request have its value.
visible_clusters: ContextVar[frozenset[int] | None] = ContextVar("visible_clusters", default=None)


class ScopedManager(models.Manager[M]):
    """The rows of clusters that the caller may see; `path` leads from a row to its cluster's number."""

    path = "cluster_id"

    def get_queryset(self) -> models.QuerySet[M]:
        """Return the rows, without those of other clusters."""
        rows, visible = super().get_queryset(), visible_clusters.get()
        return rows if visible is None else rows.filter(**{f"{self.path}__in": visible})


class ClusterManager(ScopedManager[M]):
    """Clusters themselves."""

    path = "pk"


class ManagerOfQuery(ScopedManager[M]):
    """Rows of a query."""

    path = "query__cluster_id"


class ManagerOfGroup(ScopedManager[M]):
    """Rows of a group."""

    path = "group__cluster_id"


class ManagerOfFlinkJob(ScopedManager[M]):
    """Rows of a Flink job."""

    path = "job__cluster_id"


class ManagerOfIncident(ScopedManager[M]):
    """Rows of an incident."""

    path = "incident__cluster_id"


class ManagerOfAlert(ScopedManager[M]):
    """Rows of an alert."""

    path = "alert__cluster_id"
