"""Clusters, their collectors, log positions and gaps; managers that limit rows to visible clusters; figures
over time: each series' open points, its closed chunks, and the collectors' observed spans.
"""

from collections.abc import Iterable
from contextvars import ContextVar
from enum import StrEnum
from typing import TypeVar

from django.db import models
from django.db.models import Q

from fenceline.series.points import KINDS, Resolution

M = TypeVar("M", bound=models.Model)
#: The keys of the clusters; None for all, as in a worker. The threads of a request share its value.
visible_clusters: ContextVar[frozenset[int] | None] = ContextVar("visible_clusters", default=None)


def choices_of(enumeration: Iterable[StrEnum]) -> list[tuple[str, str]]:
    """Return the values of an enumeration as the choices of a column."""
    return [(member.value, member.value) for member in enumeration]


class ScopedManager(models.Manager[M]):
    """The rows of clusters that the caller may see; `path` leads from a row to its cluster's key."""

    path = "cluster_id"

    def get_queryset(self) -> models.QuerySet[M]:
        """Return the rows of visible clusters."""
        rows, visible = super().get_queryset(), visible_clusters.get()
        return rows if visible is None else rows.filter(**{f"{self.path}__in": visible})


class ClusterManager(ScopedManager[M]):
    path = "pk"


class ManagerOfQuery(ScopedManager[M]):
    path = "query__cluster_id"


class ManagerOfGroup(ScopedManager[M]):
    path = "group__cluster_id"


class ManagerOfFlinkJob(ScopedManager[M]):
    path = "job__cluster_id"


class ManagerOfIncident(ScopedManager[M]):
    path = "incident__cluster_id"


class ManagerOfAlert(ScopedManager[M]):
    path = "alert__cluster_id"


class Cluster(models.Model):
    """A configured Kafka cluster, and its revision: the counter that orders its changes."""

    name = models.CharField(max_length=64, unique=True)
    rev = models.BigIntegerField(default=0)
    #: False once the configuration omits it; its rows are kept, and its pages say so.
    configured = models.BooleanField(default=True)
    #: The digest of the `[[owners]]` names that last assigned its ids to applications; "" for no names.
    naming = models.CharField(max_length=64, default="")

    objects = ClusterManager()

    class Meta:
        verbose_name = "cluster"

    def __str__(self) -> str:
        return self.name


class OfCluster(models.Model):
    """A row of one cluster; a unique key or an index of the table begins with `cluster`."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, db_index=False)

    objects = ScopedManager()

    class Meta:
        abstract = True


class Observed(OfCluster):
    """An observed row, with the cluster revision of its last change."""

    rev = models.BigIntegerField()

    class Meta:
        abstract = True


class Position(OfCluster):
    """The next offset to read in a partition of an internal topic, saved with the records before it."""

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    next_offset = models.BigIntegerField()
    #: The partition's end when `next_offset` was saved.
    end_offset = models.BigIntegerField()
    #: The leader epoch of the batch before `next_offset`, -1 if unknown.
    epoch = models.IntegerField(default=-1, db_default=-1)
    #: Kafka's topic id: a re-created topic is a different topic.
    topic_id = models.CharField(max_length=64)
    #: The first offset after the last range that compaction removed before it was read.
    hole_offset = models.BigIntegerField(null=True)
    #: When it was first read, by Fenceline's clock.
    since_ms = models.BigIntegerField(default=0)
    #: The difference of Fenceline's clock to the coordinator's (`fenceline.kafka.coordinator.Offset`): the
    #: smallest recent measurement, the smallest in this window, and the window's start; None before the
    #: first.
    clock_ms = models.BigIntegerField(null=True)
    clock_window_ms = models.BigIntegerField(null=True)
    clock_since_ms = models.BigIntegerField(null=True)

    class Meta:
        verbose_name = "log position"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "topic", "partition"], name="position_partition")
        ]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Collector(models.Model):
    """A collector's lease and status.

    `token` is a fencing token: every new holder increments it, and every save checks the holder's token. So a
    holder that was paused past its expiry cannot write.
    """

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    name = models.CharField(max_length=64)
    token = models.BigIntegerField(default=0)
    holder = models.CharField(max_length=128, blank=True)
    #: By the database's clock.
    expires_at = models.DateTimeField()
    #: Observation is complete up to this instant; None before the first complete poll.
    seen_through_ms = models.BigIntegerField(null=True)
    behind = models.BigIntegerField(null=True)
    #: Records read since the row was created.
    records = models.BigIntegerField(default=0)
    #: Records per second over the last save.
    rate = models.FloatField(default=0)
    #: {"value_version": 3, …}: records that could not be decoded, by reason.
    undecoded = models.JSONField(default=dict)
    #: Its cost for the cluster since the row was created: requests, and milliseconds of waiting for answers.
    requests = models.BigIntegerField(default=0)
    broker_ms = models.BigIntegerField(default=0)
    #: The costs of the last few minutes: [[minute since the epoch, requests, milliseconds], …].
    costs = models.JSONField(default=list)
    #: Further status that differs between collectors.
    detail = models.JSONField(default=dict)
    error = models.TextField(blank=True)
    #: When the error, or its absence, began.
    since_ms = models.BigIntegerField()

    objects = ScopedManager()

    class Meta:
        verbose_name = "collector"
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="collector_name")]

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


class GapRecord(models.Model):
    """A gap in the observation: its place, start, end and reason."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    source = models.CharField(max_length=64)
    scope = models.CharField(max_length=300)
    since_ms = models.BigIntegerField()
    until_ms = models.BigIntegerField(null=True)
    reason = models.TextField()
    #: The number of such gaps: the many small holes of compaction are one row.
    count = models.BigIntegerField(default=1)

    objects = ScopedManager()

    class Meta:
        verbose_name = "gap"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "source", "scope"], condition=Q(until_ms=None), name="gap_open_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


class Series(OfCluster):
    """The newest, open figures of one subject.

    Every point rewrites the row, so it stays small; full parts move to a `SeriesChunk`, which never changes.
    """

    #: A code of `fenceline.series.points.KINDS`.
    kind = models.SmallIntegerField(choices=[(kind.code, kind.name) for kind in KINDS])
    #: SHA-256 of the name: a group's name may be longer than an index entry.
    key = models.BinaryField(max_length=32)
    #: `orders-3`, a group's or an application's id; "" for all applications of a cluster together.
    name = models.TextField(blank=True)
    #: The times of its first point, of the first of `points`, and of the first of `minutes` (None without
    #: any).
    since_ms = models.BigIntegerField()
    open_ms = models.BigIntegerField()
    minutes_ms = models.BigIntegerField(null=True)
    #: Packed by `fenceline.series.packing`.
    points = models.BinaryField()
    minutes = models.BinaryField(default=b"")
    hours = models.BinaryField(default=b"")
    #: The maximum leading figure of the open points and minutes, and of the open hours.
    peak = models.BigIntegerField(null=True)
    hours_peak = models.BigIntegerField(null=True)
    #: When the subject disappeared; None while it exists.
    ended_ms = models.BigIntegerField(null=True)

    class Meta:
        verbose_name = "series"
        verbose_name_plural = "series"
        constraints = [models.UniqueConstraint(fields=["cluster", "kind", "key"], name="series_key")]
        indexes = [
            models.Index(
                fields=["cluster", "ended_ms"], condition=Q(ended_ms__isnull=False), name="series_ended"
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.name}"


class SeriesChunk(OfCluster):
    """Closed rows of a series in one resolution, valid from `start_ms` until `until_ms`.

    A series' chunks are adjacent, so a range consists of the chunks that end after its start.
    """

    #: Cluster and kind are copied from the series: the index that finds chunks by time begins with them.
    kind = models.SmallIntegerField()
    series = models.ForeignKey(Series, models.CASCADE, db_index=False)
    resolution = models.SmallIntegerField(
        choices=[(choice.value, choice.name.lower()) for choice in Resolution]
    )
    start_ms = models.BigIntegerField()
    until_ms = models.BigIntegerField()
    #: The maximum leading figure, None if never known.
    peak = models.BigIntegerField(null=True)
    packed = models.BinaryField()

    class Meta:
        verbose_name = "series chunk"
        constraints = [
            models.UniqueConstraint(fields=["series", "resolution", "until_ms"], name="series_chunk_until")
        ]
        indexes = [
            # A covering index for the search for the worst subjects of a time.
            models.Index(
                fields=["cluster", "kind", "resolution", "until_ms", "series", "peak"],
                name="series_chunk_of_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_resolution_display()} of {self.series_id} until {self.until_ms}"


class ObservedSpan(OfCluster):
    """A span in which a collector polled without a pause; between two spans nothing was observed."""

    source = models.CharField(max_length=64)
    from_ms = models.BigIntegerField()
    to_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "observed span"
        indexes = [models.Index(fields=["cluster", "source", "to_ms"], name="observed_span_to")]

    def __str__(self) -> str:
        return f"{self.source} from {self.from_ms} to {self.to_ms}"
