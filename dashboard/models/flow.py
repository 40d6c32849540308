"""What applications write to: from which the flow of data is derived."""

from __future__ import annotations

from django.db import models

from dashboard.models.collecting import OfCluster


class TopicTally(OfCluster):
    """What the transactions of an application did to one topic in a span of time, by their ends.

    A row without counts is of a transaction that was open at the end of its span.
    """

    application = models.CharField(max_length=200)
    #: "" for what is beyond the topics that are kept of an application.
    topic = models.CharField(max_length=249, blank=True)
    #: Of `__consumer_offsets` its partition, which limits whose offsets are committed; -1 of all others.
    partition = models.IntegerField()
    #: 900 or 21,600.
    span_s = models.IntegerField()
    start_ms = models.BigIntegerField()
    #: Each tail shard has rows of its own, as in Tally.
    shard = models.IntegerField()
    commits = models.BigIntegerField()
    aborts = models.BigIntegerField()
    #: Begin to the last marker, of what was committed: as `fenceline.series.histograms` packs it.
    unreadable_times = models.TextField()
    last_ms = models.BigIntegerField()

    class Meta:
        verbose_name = "topic tally"
        verbose_name_plural = "topic tallies"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "span_s", "application", "start_ms", "topic", "partition", "shard"],
                name="topic_tally_span",
            )
        ]
        indexes = [models.Index(fields=["cluster", "span_s", "start_ms"], name="topic_tally_start")]

    def __str__(self) -> str:
        return f"{self.application} to {self.topic}"
