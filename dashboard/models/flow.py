"""The topics that applications write to, the basis of the data flow."""

from django.db import models

from dashboard.models.collecting import OfCluster


class TopicTally(OfCluster):
    """An application's transactions that wrote to a topic and ended in a span of time.

    A row without counts stands for a transaction that was open at the end of the span.
    """

    application = models.CharField(max_length=200)
    #: "" for the topics beyond the number stored per application.
    topic = models.CharField(max_length=249, blank=True)
    #: The partition of `__consumer_offsets`, which narrows down the group; -1 for other topics.
    partition = models.IntegerField()
    #: 900 or 21,600.
    span_s = models.IntegerField()
    start_ms = models.BigIntegerField()
    #: Every tail shard has its own rows, as in Tally.
    shard = models.IntegerField()
    commits = models.BigIntegerField()
    aborts = models.BigIntegerField()
    #: Times from begin to the last marker of committed transactions, packed by `fenceline.series.histograms`.
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
