"""Proves that the pre-flight finds each planted mistake once and no other, and nothing in sound setups;
what is held against the timeout of an id, and when Kafka forgets it."""

from dataclasses import replace

import pytest

from fenceline.facts import NOT_REPORTED, TWO_PHASE_COMMIT_TIMEOUT_MS, Isolation, Severity
from fenceline.flow.observations import GroupReads
from fenceline.preflight.checks import find_risks
from fenceline.preflight.setup import (
    BrokerSetup,
    ClusterSetup,
    IdSetup,
    JobSetup,
    QuerySetup,
    TopicSetup,
    forgotten_ms,
    id_limits,
)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BROKERS = BrokerSetup(15 * MINUTE, 7 * DAY, verifies_partitions=True)
TOPIC = TopicSetup("orders", 3, 2, unclean_election=False)
IDS = IdSetup("payments", MINUTE, MINUTE, longest_open_ms=2_000, longest_pause_ms=HOUR, protocol=2)
QUERY = QuerySetup(
    "enrich", "q1", "exactly_once", Isolation.READ_COMMITTED, asynchronous=False, longest_batch_ms=10_000,
    timeout_ms=15 * MINUTE, checkpoint="s3://lake/enrich", prefix="enrich-",
)  # fmt: skip
JOB = JobSetup("job", ("flink-",), MINUTE, 15 * MINUTE)
READER = GroupReads("billing", "orders", isolation=Isolation.READ_COMMITTED)
SOUND = ClusterSetup(BROKERS, [TOPIC], [IDS], [QUERY], [JOB], [READER])


def ids(**changes: object) -> ClusterSetup:
    return replace(SOUND, ids=[IDS._replace(**changes)])  # type: ignore[arg-type]


def topic(**changes: object) -> ClusterSetup:
    return replace(SOUND, topics=[TOPIC._replace(**changes)])  # type: ignore[arg-type]


def query(**changes: object) -> ClusterSetup:
    return replace(SOUND, queries=[QUERY._replace(**changes)])  # type: ignore[arg-type]


def job(**changes: object) -> ClusterSetup:
    return replace(SOUND, jobs=[JOB._replace(**changes)])  # type: ignore[arg-type]


def brokers(**changes: object) -> ClusterSetup:
    return replace(SOUND, brokers=BROKERS._replace(**changes))  # type: ignore[arg-type]


def reader(isolation: Isolation) -> ClusterSetup:
    return replace(SOUND, readers=[READER._replace(isolation=isolation)])


C, W, INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
#: Each mistake: the setup, the check that finds it, how bad it is, and its subject.
MISTAKES = [
    (ids(longest_timeout_ms=15 * MINUTE + 1), "timeout_refused", C, "application:payments"),
    (brokers(max_timeout_ms=MINUTE - 1), "timeout_refused", C, "application:payments"),
    (ids(longest_open_ms=MINUTE), "timeout_too_short", C, "application:payments"),
    (ids(longest_open_ms=2 * MINUTE), "timeout_too_short", C, "application:payments"),
    (ids(longest_open_ms=48_000), "timeout_too_short", W, "application:payments"),
    (ids(shortest_timeout_ms=1_000), "timeout_too_short", C, "application:payments"),
    (query(longest_batch_ms=15 * MINUTE), "timeout_too_short", C, "query:q1"),
    (query(longest_batch_ms=12 * MINUTE), "timeout_too_short", W, "query:q1"),
    (query(timeout_ms=10_000), "timeout_too_short", C, "query:q1"),
    (job(longest_interval_ms=8 * MINUTE), "timeout_too_short", C, "flink_job:job"),
    (job(longest_interval_ms=7 * MINUTE), "timeout_too_short", W, "flink_job:job"),
    (job(timeout_ms=MINUTE), "timeout_too_short", C, "flink_job:job"),
    (
        replace(ids(longest_timeout_ms=2 * HOUR), brokers=BROKERS._replace(max_timeout_ms=3 * HOUR)),
        "timeout_too_long", W, "application:payments",
    ),
    (ids(is_two_phase=True), "never_times_out", W, "application:payments"),
    (ids(is_two_phase=True, longest_open_ms=DAY), "never_times_out", W, "application:payments"),
    (job(prefixes=("enrich-",)), "shared_prefix", C, "query:q1"),
    (job(prefixes=("enrich-7-",)), "shared_prefix", C, "query:q1"),
    (job(prefixes=("enr",)), "shared_prefix", C, "query:q1"),
    (replace(SOUND, jobs=[JOB, JOB._replace(name="copy")]), "shared_prefix", C, "flink_job:job"),
    (ids(longest_pause_ms=7 * DAY), "id_expires", W, "application:payments"),
    (brokers(id_expiration_ms=HOUR), "id_expires", W, "application:payments"),
    (topic(replicas=1, min_in_sync=1), "one_replica", C, "topic:orders"),
    (topic(min_in_sync=1), "one_in_sync", W, "topic:orders"),
    (topic(replicas=2, min_in_sync=1), "one_in_sync", W, "topic:orders"),
    (topic(min_in_sync=3), "all_in_sync", W, "topic:orders"),
    (topic(replicas=2, min_in_sync=2), "all_in_sync", W, "topic:orders"),
    (topic(unclean_election=True), "unclean_election", C, "topic:orders"),
    (topic(name="__consumer_offsets", replicas=1), "one_replica", C, "topic:__consumer_offsets"),
    (brokers(verifies_partitions=False), "verification_off", C, "cluster"),
    (ids(protocol=0), "old_protocol", INFO, "application:payments"),
    (ids(protocol=1), "old_protocol", INFO, "application:payments"),
    (topic(plain_records=True), "plain_records", W, "topic:orders"),
    (reader(Isolation.READ_UNCOMMITTED), "reads_uncommitted", C, "group:billing"),
    (query(isolation=Isolation.READ_UNCOMMITTED), "reads_uncommitted", C, "query:q1"),
    (query(sink="kafka"), "sink_repeats", W, "query:q1"),
    (query(asynchronous=True), "asynchronous_progress", W, "query:q1"),
    (query(checkpoint="file:/tmp/enrich"), "local_checkpoint", C, "query:q1"),
    (query(checkpoint="file:///tmp/enrich"), "local_checkpoint", C, "query:q1"),
    (query(checkpoint="/var/tmp/enrich"), "local_checkpoint", C, "query:q1"),
]  # fmt: skip
#: Setups in which nothing is wrong, or nothing is known to be.
FINE = [
    SOUND,
    ClusterSetup(),
    ClusterSetup(unseen=["the brokers' settings"]),
    ids(longest_open_ms=None), ids(longest_pause_ms=None), ids(protocol=None),
    ids(longest_open_ms=47_999), ids(longest_timeout_ms=15 * MINUTE), ids(longest_pause_ms=5 * DAY),
    replace(ids(longest_timeout_ms=HOUR), brokers=BROKERS._replace(max_timeout_ms=HOUR)),
    brokers(max_timeout_ms=None), brokers(id_expiration_ms=None), brokers(verifies_partitions=None),
    brokers(max_timeout_ms=MINUTE),
    topic(replicas=None), topic(min_in_sync=None), topic(unclean_election=None), topic(plain_records=None),
    topic(plain_records=False), topic(replicas=5, min_in_sync=3), topic(replicas=5, min_in_sync=4),
    query(sink=""), query(sink="other"), query(asynchronous=None), query(isolation=Isolation.UNKNOWN),
    query(longest_batch_ms=None), query(timeout_ms=None), query(prefix=""), query(checkpoint=""),
    query(checkpoint="file:///srv/checkpoints/tmp/enrich"), query(checkpoint="s3://bucket/tmp/enrich"),
    query(checkpoint="hdfs://nn/tmp/enrich"), query(longest_batch_ms=11 * MINUTE),
    job(longest_interval_ms=None), job(timeout_ms=None), job(prefixes=()), job(prefixes=("",)),
    job(prefixes=("flink-", "flink-a-")), job(longest_interval_ms=5 * MINUTE),
    reader(Isolation.UNKNOWN), reader(Isolation.READ_COMMITTED),
]  # fmt: skip


@pytest.mark.parametrize(("setup", "check", "severity", "subject"), MISTAKES)
def test_each_mistake_is_found_once_and_alone(
    setup: ClusterSetup, check: str, severity: Severity, subject: str
) -> None:
    (risk,) = find_risks(setup)
    assert (risk.check, risk.severity, risk.subject) == (check, severity, subject)
    assert all((risk.fact, risk.risk, risk.remedy, risk.source))


@pytest.mark.parametrize("setup", FINE)
def test_nothing_is_found_in_a_sound_setup(setup: ClusterSetup) -> None:
    assert not find_risks(setup)


def test_the_worst_comes_first() -> None:
    late = IDS._replace(protocol=1, longest_open_ms=MINUTE)
    mixed = replace(SOUND, ids=[late], topics=[TOPIC._replace(min_in_sync=1)])
    assert [risk.severity for risk in find_risks(mixed)] == [C, W, INFO]


KNOWN_BROKERS = BrokerSetup(15 * MINUTE, 7 * 24 * 60 * MINUTE)


def test_what_needs_the_timeout_is_told_as_its_share_and_what_is_not_known_left_out() -> None:
    query = QuerySetup("orders_enrich", longest_batch_ms=48_000)
    job = JobSetup("flink", longest_interval_ms=10_000)
    told = id_limits(MINUTE, KNOWN_BROKERS, [500, 3_000], query, job)
    assert [(each.value_ms, each.share, each.is_near) for each in told] == [
        (MINUTE, None, False),
        (15 * MINUTE, None, False),
        (3_000, 5.0, False),
        (48_000, 80.0, True),
        (20_000, pytest.approx(100 / 3), False),
    ]
    (alone,) = id_limits(MINUTE, BrokerSetup(), [], QuerySetup("q"), JobSetup("j"))
    assert alone.value_ms == MINUTE
    for timeout_ms in (NOT_REPORTED, TWO_PHASE_COMMIT_TIMEOUT_MS, 0, -5):
        assert id_limits(timeout_ms, KNOWN_BROKERS, [MINUTE]) == ()


def test_an_idle_id_is_forgotten_after_its_last_change() -> None:
    assert forgotten_ms(5_000, KNOWN_BROKERS, is_open=False) == 5_000 + 7 * 24 * 60 * MINUTE
    assert forgotten_ms(5_000, KNOWN_BROKERS, is_open=True) is None
    assert forgotten_ms(5_000, BrokerSetup(), is_open=False) is None
