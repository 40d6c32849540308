"""Figures over time: each series' open points, its closed chunks, and the collectors' observed spans."""

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import OfCluster
from fenceline.series.points import KINDS, Resolution


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
