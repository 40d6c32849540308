"""Clusters, their collectors and positions, and the gaps in what was read."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from dashboard.models.scope import ClusterManager, ScopedManager


class Cluster(models.Model):
    """A Kafka cluster of the configuration, and its revision: the counter that orders every change."""

    name = models.CharField(max_length=64, unique=True)
    rev = models.BigIntegerField(default=0)
    #: False once the configuration no longer names it; its rows stay, its pages note it.
    configured = models.BooleanField(default=True)
    #: By which names of `[[owners]]` its ids were last put to applications: their digest, "" by none.
    naming = models.CharField(max_length=64, default="")

    objects = ClusterManager()

    class Meta:
        verbose_name = "cluster"
        verbose_name_plural = "clusters"

    def __str__(self) -> str:
        return self.name


class OfCluster(models.Model):
    """A row of one cluster; a unique key or an index of the table begins with it."""

    cluster = models.ForeignKey(Cluster, models.CASCADE, db_index=False)

    objects = ScopedManager()

    class Meta:
        abstract = True


class Observed(OfCluster):
    """An observed row, with the revision of its cluster that wrote it last."""

    rev = models.BigIntegerField()

    class Meta:
        abstract = True


class Position(OfCluster):
    """The next offset to read in one partition of an internal topic, saved with what came before it."""

    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    next_offset = models.BigIntegerField()
    #: The topic's end when `next_offset` was saved.
    end_offset = models.BigIntegerField()
    #: The epoch of the leader that wrote the batch before `next_offset`, -1 where it is not known.
    epoch = models.IntegerField(default=-1, db_default=-1)
    #: Kafka's id of the topic: one that was deleted and made again is another topic.
    topic_id = models.CharField(max_length=64)
    #: The first offset after the last stretch that compaction had removed before we came.
    hole_offset = models.BigIntegerField(null=True)
    #: When it was first read, by our clock.
    since_ms = models.BigIntegerField(default=0)
    #: How far our clock is ahead of the coordinator's (`fenceline.kafka.clock_skew.Offset`): the smallest
    #: difference measured of late, the smallest of this window, and when that began. None before any was
    #: measured.
    clock_ms = models.BigIntegerField(null=True)
    clock_window_ms = models.BigIntegerField(null=True)
    clock_since_ms = models.BigIntegerField(null=True)

    class Meta:
        verbose_name = "log position"
        verbose_name_plural = "log positions"
        constraints = [
            models.UniqueConstraint(fields=["cluster", "topic", "partition"], name="position_partition")
        ]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Collector(models.Model):
    """A collector's lease and its own status.

    `token` is a fencing token: it grows with every new holder, and every save names the token it was given,
    so a holder that was paused past its expiry can write nothing.
    """

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    name = models.CharField(max_length=64)
    token = models.BigIntegerField(default=0)
    holder = models.CharField(max_length=128, blank=True)
    #: By the database's clock.
    expires_at = models.DateTimeField()
    #: Everything before this instant has been seen; None before the first complete poll.
    seen_through_ms = models.BigIntegerField(null=True)
    behind = models.BigIntegerField(null=True)
    #: Records read since the row was made.
    records = models.BigIntegerField(default=0)
    #: Records per second over the last save.
    rate = models.FloatField(default=0)
    #: {"value_version": 3, …}: records that could not be decoded, by reason.
    undecoded = models.JSONField(default=dict)
    #: What it has cost the cluster since the row was made: requests, and milliseconds of waiting for answers.
    requests = models.BigIntegerField(default=0)
    broker_ms = models.BigIntegerField(default=0)
    #: The same minute by minute: [[minute since the epoch, requests, milliseconds], …], the last few.
    costs = models.JSONField(default=list)
    #: Further status, different for each collector.
    detail = models.JSONField(default=dict)
    error = models.TextField(blank=True)
    #: When the error, or its absence, began.
    since_ms = models.BigIntegerField()

    objects = ScopedManager()

    class Meta:
        verbose_name = "collector"
        verbose_name_plural = "collectors"
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="collector_name")]

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


class GapRecord(models.Model):
    """Something that could not be read: where, since when, why, and until when."""

    cluster = models.ForeignKey(Cluster, models.CASCADE)
    source = models.CharField(max_length=64)
    scope = models.CharField(max_length=300)
    since_ms = models.BigIntegerField()
    until_ms = models.BigIntegerField(null=True)
    reason = models.TextField()
    #: How often it was seen: compaction leaves many small holes, each no news of its own.
    count = models.BigIntegerField(default=1)

    objects = ScopedManager()

    class Meta:
        verbose_name = "gap"
        verbose_name_plural = "gaps"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "source", "scope"], condition=Q(until_ms=None), name="gap_open_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"
