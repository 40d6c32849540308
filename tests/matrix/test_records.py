"""On every version: the records are those that docs/design/kafka.md §1.3 to §1.5 names, and they are read
and interpreted correctly.

The scenarios are those of tests/data, whose captures of 3.9 and 4.2 prove the rest without a broker.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from py4j.java_gateway import JavaGateway

from fenceline.decode import consumer_offsets
from fenceline.decode.transaction_state import decode_record
from fenceline.facts import Confidence, TransactionRecord, TransactionState, Transition, TransitionKind
from fenceline.kafka.transitions import IdHistory, derive_transition, next_history
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.data import scenarios
from tests.data.scenarios import BOTH, TOPICS, Stage
from tests.java.clients import JavaAdmin
from tests.kafka.topic_records import raw_records
from tests.matrix.kafka_versions import Expected
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]

MakeStage = Callable[[str, str], Stage]
OFFSETS = "__consumer_offsets"
#: What comes before is a long row of initialisations.
BURNT_TO = scenarios.LAST_EPOCH - 1
ENDED_BY_BROKER = (scenarios.takeover, scenarios.timeout)
ENDED_BY_CLIENT = (scenarios.commit, scenarios.abort_and_go_on, scenarios.offsets)


@pytest.fixture
def make_stage(kafka: Broker, java: JavaGateway) -> Iterator[MakeStage]:
    """Return what makes a stage, on topics that are there: a client and a transactional id of its own."""
    there = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics
    if missing := set(TOPICS) - set(there):
        create_topics(kafka.bootstrap, *missing)
    with JavaAdmin(java, kafka.bootstrap) as admin:
        yield lambda client, name: Stage(kafka, java, admin, client, f"{client}-{name}")


def settled(stage: Stage) -> list[TransactionRecord]:
    """Return the records of an id once the last end is complete."""
    ids = [stage.transactional_id]
    wait_for(
        lambda: not stage.admin.describe_transactions(ids)[ids[0]].state.startswith("Prepare"),
        f"the markers of {ids[0]} are written",
    )
    found = (decode_record(raw.key, raw.value) for raw in raw_records(stage.broker.bootstrap))
    return [each for each in found if isinstance(each, TransactionRecord) and each.transactional_id in ids]


def derived_transitions(records: list[TransactionRecord]) -> list[Transition]:
    """Return the final transitions of an id's records, oldest first."""
    life, told = IdHistory(), dict[int, Transition]()
    for offset, record in enumerate(records):
        step = derive_transition(life, record, 0, offset, whole=True)
        life = next_history(life, record, step)
        told |= {each.offset: each for each in (step.revised, step.made) if each}
    return [told[offset] for offset in sorted(told) if told[offset].kind is not TransitionKind.EXTEND]


def raised(records: list[TransactionRecord], state: TransactionState) -> set[int]:
    """Return by how much the epoch rose at each record in a state."""
    pairs = pairwise(records)
    return {after.producer_epoch - before.producer_epoch for before, after in pairs if after.state is state}


@pytest.mark.parametrize("client", BOTH)
@pytest.mark.parametrize("scenario", ENDED_BY_CLIENT)
def test_a_clients_end_gets_the_correct_verdict(
    make_stage: MakeStage, expected: Expected, client: str, scenario: scenarios.Scenario
) -> None:
    stage = make_stage(client, scenario.__name__)
    truth = scenario(stage).split()
    records = settled(stage)
    told = derived_transitions(records)
    protocol_2 = client == "java" and expected.protocol_2
    if scenario is scenarios.commit and protocol_2:
        # The last abort of a protocol 2 client looks like the broker's own until that client goes on.
        assert told.pop().confidence is Confidence.AMBIGUOUS
        truth.pop()
    # One foreign InitProducerId just before a protocol 2 client's abort leaves the same.
    abort = Confidence.PROBABLE if protocol_2 else Confidence.CERTAIN
    assert [(each.kind.value, each.confidence) for each in told] == [
        (kind, abort if kind == "client_abort" else Confidence.CERTAIN) for kind in truth
    ]
    bump = {1 if protocol_2 else 0}
    assert (
        raised(records, TransactionState.PREPARE_COMMIT) | raised(records, TransactionState.PREPARE_ABORT)
        == bump
    )
    assert raised(records, TransactionState.COMPLETE_COMMIT) | raised(records, TransactionState.ONGOING) == {
        0
    }
    assert {each.client_version for each in records[1:]} == {2 if protocol_2 else 0}
    assert {each.value_version for each in records} == {expected.record_version}


@pytest.mark.parametrize("client", BOTH)
@pytest.mark.parametrize("scenario", ENDED_BY_BROKER)
def test_the_coordinators_abort_is_distinguished_from_a_clients(
    make_stage: MakeStage, expected: Expected, client: str, scenario: scenarios.Scenario
) -> None:
    stage = make_stage(client, scenario.__name__)
    truth = scenario(stage).split()
    records = settled(stage)
    told = derived_transitions(records)
    assert raised(records, TransactionState.PREPARE_ABORT) == {expected.forced_bump}
    assert raised(records, TransactionState.COMPLETE_ABORT) == {0}
    forced = next(each for each in records if each.state is TransactionState.PREPARE_ABORT)
    assert forced.client_version == expected.transaction_version
    if client == "java" and expected.protocol_2 and expected.forced_bump == 1 and "takeover" in truth:
        # The same bytes as a client's abort, and another producer after it (docs/design/kafka.md §0).
        (abort,) = (
            each for each in told if each.open_ms is not None and each.kind is not TransitionKind.COMMIT
        )
        assert abort.confidence is Confidence.AMBIGUOUS
    else:
        assert [each.kind.value for each in told] == truth
        assert Confidence.AMBIGUOUS not in {each.confidence for each in told}


def test_a_producer_id_that_is_used_up_is_followed_by_another(
    make_stage: MakeStage, expected: Expected
) -> None:
    stage = make_stage("java", "rotation")
    truth = scenarios.rotation_end(stage).split()
    found = settled(stage)
    first = found[0].producer_id
    records = [each for each in found if each.producer_id != first or each.producer_epoch >= BURNT_TO]
    told = derived_transitions(records)
    assert [each.kind.value for each in told] == truth
    assert ("rotation" in truth) == expected.protocol_2
    prepared = [each for each in records if each.state is TransactionState.PREPARE_COMMIT]
    if expected.protocol_2:
        following = records[-1].producer_id if expected.names_producer_ids else None
        assert (prepared[0].producer_epoch, prepared[0].next_producer_id) == (32_767, following)
        assert prepared[0].producer_id != records[-1].producer_id


@pytest.mark.parametrize("client", BOTH)
def test_only_the_newest_version_names_the_producer_id_before(
    make_stage: MakeStage, expected: Expected, client: str
) -> None:
    stage = make_stage(client, "names")
    stage.opened().commit()
    records = settled(stage)
    named = {each.producer_id if expected.names_producer_ids else None for each in records}
    assert {each.previous_producer_id for each in records} == named
    assert {each.next_producer_id for each in records} == {None}


@pytest.mark.parametrize("client", [*BOTH, "plain"])
def test_offset_commits_have_the_versions_value(
    make_stage: MakeStage, expected: Expected, kafka: Broker, client: str
) -> None:
    group = f"matrix-{client}"
    if client == "plain":
        plain = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
        create_topics(kafka.bootstrap, group)
        plain.commit(offsets=[TopicPartition(group, 0, 7)], asynchronous=False)
        plain.close()
    else:
        create_topics(kafka.bootstrap, group)
        producer = make_stage(client, "offsets-value").producer()
        producer.init()
        producer.begin()
        producer.send_offsets(group, {(group, 0): 7})
        producer.commit()
    commit = wait_for(lambda: committed(kafka.bootstrap, group), f"a commit of {group}")
    assert (commit.topic, commit.partition, commit.offset) == (group, 0, 7)
    assert commit.value_version == expected.offset_version


def committed(bootstrap: str, group: str) -> consumer_offsets.OffsetCommit | None:
    """Return the last commit of a group, by its record."""
    found = (consumer_offsets.decode_record(raw.key, raw.value) for raw in raw_records(bootstrap, OFFSETS))
    commits = [each for each in found if isinstance(each, consumer_offsets.OffsetCommit)]
    return next((each for each in reversed(commits) if each.group == group), None)
