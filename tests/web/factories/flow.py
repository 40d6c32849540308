"""What applications write to, for the flow of data."""

from dashboard.models import Cluster, TopicTally
from dashboard.transactions.topic_tallies import LONG_S, SHORT_S
from fenceline.series.histograms import bucket_of, pack_histogram
from tests.web.factories.clusters import now_ms


def topic_tally(
    of: Cluster,
    application: str,
    topic: str,
    commits: int = 60,
    *,
    partition: int = -1,
    unreadable_ms: int = 80,
    age_ms: int = 2_000,
) -> None:
    """Let an application's transactions have written to a topic, the last of them `age_ms` ago."""
    last_ms = now_ms() - age_ms
    times = pack_histogram({bucket_of(unreadable_ms): commits}) if commits else "{}"
    for span_s in (SHORT_S, LONG_S):
        TopicTally.objects.create(
            cluster=of,
            application=application,
            topic=topic,
            partition=partition,
            span_s=span_s,
            start_ms=last_ms - last_ms % (span_s * 1_000),
            shard=0,
            commits=commits,
            aborts=0,
            unreadable_times=times,
            last_ms=last_ms,
        )
