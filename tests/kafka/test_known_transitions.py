"""Proves the transitions on random transactions by librdkafka, Java and raw clients whose outcomes are known.

Every certain verdict is right, of the probable ones at most one in a hundred is not, and nothing is called
ambiguous where the log distinguishes it. Not among the hundred: one foreign InitProducerId followed by the
owner's abort, which leaves the records of the owner's own abort, and a fence with a timeout of its own, which
leaves those of a takeover: they must read as that and no more than probable. No finding, incident or alert
states as fact what verdicts call ambiguous. `make soak` plays 10,000 with a seed that it prints, a tenth of
them under a machine load of 30.

On Kafka 4.2 an abort at the last epoch shows its origin: client or coordinator.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from py4j.java_gateway import JavaGateway

from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.incidents.store import incident_facts
from dashboard.models import Alert, Cluster, FindingRecord, Incident, TransitionRecord
from dashboard.runtime import loop
from fenceline import rules
from fenceline.decode.transaction_state import decode_record
from fenceline.facts import (
    Confidence,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.transitions import LAST_EPOCH, IdHistory, derive_transition, next_history
from fenceline.limits import Limits
from sandbox.kafka import Broker
from sandbox.scenes.wire import CoordinatorConnection, CoordinatorRefused
from tests.brokers import REFUSE_SELF_RECOVERY, create_topics
from tests.java.clients import JavaAdmin
from tests.kafka.driven import collected_transactions, only_cluster, take_lease
from tests.kafka.random_transactions import ClientCluster
from tests.kafka.raw_producers import RawProducer, RawProducer2
from tests.kafka.scripted_transactions import NARROW, run_clients
from tests.kafka.topic_records import raw_records
from tests.kafka.transition_comparison import Verdict, compare, recognised, table
from tests.seeds import SEED
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]
#: A process ends by itself after so long, should nobody end it.
LONGEST_S = 900
_BUSY = f"import signal; signal.alarm({LONGEST_S})\nwhile True: pass"
#: What a kind reads as whose records are exactly those of another one, by its outcome.
TWIN_REASONS = {
    ("foreign_init", TransitionReason.CLIENT_WENT_ON),
    ("fence_with_own_timeout", TransitionReason.CAME_BACK_SOON),
}
#: So that what was played is found, whenever that was.
LIMITS = Limits(fencing_storm=2.0, fencing_storm_s=86_400.0, abort_window_s=86_400.0)
#: How a takeover is stated as a fact.
STATED = re.compile(r"taken over repeatedly|takes over|most of them takeover\b(?!, or)|\d takeovers of open")
#: How many of a broker's 5,000 are played without the load.
IDLE = 4_500


@contextmanager
def cpu_load(processes: int) -> Iterator[None]:
    """Keep so many processes busy meanwhile, for a quarter of an hour at most."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def play(
    kafka: Broker, java: JavaGateway, name: str, ids: int, transactions: int, say: Callable[[str], None]
) -> list[Verdict]:
    """Play on one broker, print the seed and the table, and return every verdict."""
    say(f"\nKafka {kafka.version}: {transactions} transactions, FENCELINE_SEED={SEED}")
    topics = (f"{name}-a", f"{name}-b")
    create_topics(kafka.bootstrap, *topics)
    ensure_narrow(kafka.bootstrap)
    with JavaAdmin(java, kafka.bootstrap) as admin:
        cluster = ClientCluster(kafka.bootstrap, java, admin, topics)
        names = [f"{name}-{number}" for number in range(ids)]
        protocol_2, recovers = kafka.version != "3.9.1", kafka.version not in REFUSE_SELF_RECOVERY
        logs = run_clients(
            cluster, names, transactions, SEED, java_uses_protocol_2=protocol_2, recovers=recovers
        )
    verdicts = compare(logs, raw_records(kafka.bootstrap))
    say(table(verdicts))
    say(recognised(verdicts))
    certain = [each for each in verdicts if each.derived and each.derived.confidence == "certain"]
    say(f"certain: {len(certain)}, of which false: {sum(each.confidence == 'wrong' for each in certain)}")
    return verdicts


def ensure_narrow(bootstrap: str) -> None:
    """Make the topic that refuses large records, unless another test has."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    if NARROW not in client.list_topics(timeout=30).topics:
        narrow = NewTopic(NARROW, 1, 1, config={"max.message.bytes": "2000"})
        client.create_topics([narrow])[NARROW].result(30)


def check(verdicts: list[Verdict]) -> None:
    """Check that the verdicts keep the limits above."""
    wrong = [verdict for verdict in verdicts if verdict.confidence == "wrong"]
    shown = "\n".join(map(str, wrong))
    assert not [each for each in wrong if not each.derived or each.derived.confidence == "certain"], shown
    twins = [each for each in wrong if is_twin(each)]
    reasons = {(each.mark.outcome, each.derived.reason) for each in twins if each.derived}
    assert reasons <= TWIN_REASONS, shown
    wrong = [each for each in wrong if not is_twin(each)]
    probable = sum(verdict.confidence == "probable" for verdict in verdicts)
    # A hundred transactions hold too few probable verdicts for a share: one of them may be wrong.
    lines = {each.derived for each in wrong}
    assert len(lines) <= max(1, 0.01 * (probable + len(lines))), shown
    vague = [verdict for verdict in verdicts if verdict.can_tell and verdict.confidence == "ambiguous"]
    assert not vague, "\n".join(map(str, vague))


def overstatements(bootstrap: str) -> list[str]:
    """Evaluate the whole log of a broker, and return what is said to be taken over and may not be.

    That is what findings, incidents and alerts say of an id or of an application, unless so many takeovers
    as make a finding are certain or probable.
    """
    collected_transactions(bootstrap)
    (cluster,) = Cluster.objects.values_list("name", flat=True)
    now_ms = loop.now_ms()
    judge, alerting = (take_lease(cluster, name) for name in (evaluate_rules.NAME, evaluate_alerts.NAME))
    with only_cluster(cluster, {}, limits=LIMITS):
        snapshot = SnapshotReader(cluster).read(now_ms=now_ms, limits=LIMITS)
        found = list(rules.evaluate_rules(snapshot, now_ms=now_ms, limits=LIMITS))
        facts = incident_facts(snapshot, now_ms=now_ms)
        for at_ms in range(now_ms, now_ms + 3_000, 1_000):
            evaluate_rules.save_findings(judge, found, sees=lambda row: True, now_ms=at_ms, facts=facts)
            evaluate_alerts.evaluate_alerts(alerting, now_ms=at_ms)
    sure = Counter[str]()
    rows = TransitionRecord.objects.filter(kind="takeover").exclude(confidence="ambiguous")
    for name, application in rows.values_list("transactional_id", "application"):
        sure.update([f"transaction:{name}", f"application:{application}"])
    said = [(row.subject, f"{row.summary}; {row.evidence}") for row in FindingRecord.objects.all()]
    said += [(row.subject, json.dumps(row.facts)) for row in Incident.objects.all()]
    said += [(row.subject, json.dumps(row.annotations)) for row in Alert.objects.all()]
    assert any(row.rule == "fencing_storm" for row in found)
    return [
        f"{subject}: {words}" for subject, words in said
        if STATED.search(words) and sure[subject] < LIMITS.fencing_storm
    ]  # fmt: skip


def is_twin(verdict: Verdict) -> bool:
    """Whether its records are exactly those of another kind."""
    mark = verdict.mark
    if mark.outcome == "fence_with_own_timeout":
        return mark.kind in (TransitionKind.ADMIN_FENCE, None)
    return mark.outcome == "foreign_init" and mark.protocol == "2" and mark.kind is TransitionKind.TAKEOVER


def test_a_hundred_known_outcomes_are_derived_on_each_broker(kafka: Broker, java: JavaGateway) -> None:
    check(play(kafka, java, "fates", 12, 100, print))
    assert overstatements(kafka.bootstrap) == []


@pytest.mark.soak
def test_five_thousand_known_outcomes_are_derived_on_each_broker(
    kafka: Broker, java: JavaGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    def print_uncaptured(text: str) -> None:
        with capsys.disabled():
            print(text)

    check(play(kafka, java, "soak-fates", 60, IDLE, print_uncaptured))
    with cpu_load(30):
        print_uncaptured(f"load average {os.getloadavg()[0]:.0f} as the loaded part begins")
        verdicts = play(kafka, java, "soak-loaded", 60, 5_000 - IDLE, print_uncaptured)
        print_uncaptured(f"load average {os.getloadavg()[0]:.0f} as it ends")
    check(verdicts)
    assert overstatements(kafka.bootstrap) == []


def opened_at_last_epoch(broker: Broker, name: str) -> RawProducer2:
    """Return a producer of transaction version 2 that has a transaction open at the last epoch."""
    with CoordinatorConnection(broker.bootstrap, name) as coordinator:
        first = coordinator.init_producer_id()
        for _ in coordinator.init_again(LAST_EPOCH - 1 - first.epoch):
            pass
    producer = RawProducer2(broker.bootstrap, name)
    producer.init()
    assert producer.identity.epoch == LAST_EPOCH
    create_topics(broker.bootstrap, name)
    producer.send(name, 0)
    return producer


def abort_of(broker: Broker, name: str) -> Transition:
    """Return the verdict on an id's last end, once that is complete."""
    with CoordinatorConnection(broker.bootstrap, name) as coordinator:
        wait_for(
            lambda: coordinator.transaction_state() == TransactionState.COMPLETE_ABORT, f"{name} is aborted"
        )
    life, ends = IdHistory(), dict[int, Transition]()
    for raw in sorted(raw_records(broker.bootstrap)):
        record = decode_record(raw.key, raw.value)
        if isinstance(record, TransactionRecord) and record.transactional_id == name:
            step = derive_transition(life, record, raw.partition, raw.offset)
            life = next_history(life, record, step)
            ends |= {told.offset: told for told in step if told and told.open_ms is not None}
    return ends[max(ends)]


@pytest.mark.soak
def test_a_clients_abort_at_the_last_epoch_continues_with_a_new_producer_id(kafka_42: Broker) -> None:
    producer = opened_at_last_epoch(kafka_42, "last-client")
    producer.abort()
    told = abort_of(kafka_42, "last-client")
    verdict = (told.kind, told.confidence, told.reason)
    assert verdict == (TransitionKind.CLIENT_ABORT, Confidence.CERTAIN, TransitionReason.CLIENT_AT_LAST_EPOCH)
    producer.abandon()


@pytest.mark.soak
def test_the_coordinators_abort_at_the_last_epoch_keeps_the_producer_id(kafka_42: Broker) -> None:
    producer = opened_at_last_epoch(kafka_42, "last-broker")
    stranger = RawProducer(kafka_42.bootstrap, "last-broker")
    with suppress(CoordinatorRefused):
        stranger.init_once()
        raise AssertionError("initialised while a transaction was open")
    told = abort_of(kafka_42, "last-broker")
    verdict = (told.kind, told.confidence, told.reason)
    assert verdict == (TransitionKind.TAKEOVER, Confidence.PROBABLE, TransitionReason.BROKER_AT_LAST_EPOCH)
    for each in (producer, stranger):
        each.abandon()
