"""Proves that each way to sign in serves all that Fenceline does on a cluster: the tail, lists, groups, a
fence, an abort marker, ends, the doctor, and a batch of the sink, its tasks and its driver."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from collectors.doctor.examination import CheckStatus
from collectors.kafka.internal_topics import Tail
from fenceline.facts import TopicPartition, TransactionState
from fenceline.kafka.reconcile import Described
from spark_pipeline.sink.cluster import timeout_ms
from spark_pipeline.sink.options import translate_options
from tests.identity_provider import IdentityProvider
from tests.kafka.authentication import callbacks
from tests.kafka.authentication.conftest import TOPIC
from tests.kafka.doctor_checks import run_doctor
from tests.kafka.producers import open_in
from tests.kafka.test_tail import read_all
from tests.secured import Secured
from tests.spark.sink.queries import FakeQuery, read, values_of
from transaction_admin.api import Ending, Fencing, Marker
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka

CALLBACK = f"{callbacks.__name__}:signed"
#: way -> a cluster's properties.
WAYS: Mapping[str, Callable[[Secured], Mapping[str, str]]] = {
    "endpoint": Secured.by_token,
    "callback": lambda broker: broker.by_callback(CALLBACK),
    "PKCS12": Secured.by_store,
    "SCRAM-SHA-512": lambda broker: broker.by_password("SCRAM-SHA-512"),
    "PLAIN": lambda broker: broker.by_password("PLAIN"),
    "SCRAM-SHA-256": lambda broker: broker.by_password("SCRAM-SHA-256"),
    "PEM": Secured.by_certificate,
    "PEM as text": Secured.by_text,
}
#: What other tests of the gate sign in by, or what differs from those before by a name alone.
ALIKE = ("SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256", "PEM", "PEM as text")


@pytest.fixture(params=[pytest.param(way, marks=pytest.mark.matrix) if way in ALIKE else way for way in WAYS])
def properties(
    request: pytest.FixtureRequest, secured: Secured, provider: IdentityProvider
) -> Mapping[str, str]:
    callbacks.PROVIDERS[:] = [provider]
    return WAYS[request.param](secured)


@pytest.fixture
def admin(properties: Mapping[str, str]) -> Iterator[TransactionAdmin]:
    with closing(TransactionAdmin(properties, 20)) as admin:
        yield admin


def open_transaction(broker: Secured, admin: TransactionAdmin) -> Described:
    """Open one with a record in partition 0, by a producer that is gone."""
    name = f"open-{uuid.uuid4().hex[:8]}"
    open_in(broker.bootstrap, name, TOPIC, 0).abandon()
    described = admin.describe_transactions([name])[name]
    assert isinstance(described, Described)
    assert described.state is TransactionState.ONGOING
    return described


def test_everything_is_seen_and_done(
    secured: Secured, properties: Mapping[str, str], admin: TransactionAdmin
) -> None:
    fenced, ended = (open_transaction(secured, admin) for _ in range(2))
    names = {fenced.transactional_id, ended.transactional_id}
    assert names <= admin.list_transactions([TransactionState.ONGOING]).entries.keys()
    with closing(Tail(properties)) as tail:
        tail.seek("", {})
        assert names <= read_all(tail).keys()
    with closing(ClusterReads(properties, 20)) as reads:
        assert reads.list_groups().unseen == ()
        where = TopicPartition(TOPIC, 0)
        leader = reads.describe_topology([TOPIC]).partitions[where].leader
        offsets = reads.list_offsets({where: leader})
        assert isinstance(offsets, Mapping)
    fencing = Fencing(fenced.transactional_id, 60_000)
    assert admin.fence_producers([fencing], timeout_s=20)[fenced.transactional_id].code == 0
    ending = Ending(ended.transactional_id, ended.producer_id, ended.producer_epoch, commit=True)
    assert admin.end_transactions([ending], timeout_s=20)[ended.transactional_id].code == 0
    marker = Marker(where, ended.producer_id, ended.producer_epoch, 0)
    assert admin.write_abort_marker(marker, leader=secured.node_id).code == 0


def test_the_doctor_finds_nothing_wrong(properties: Mapping[str, str]) -> None:
    failed = [each for each in run_doctor(properties) if each.status is CheckStatus.FAIL]
    assert failed == []


def test_the_sink_writes_and_commits_a_batch(
    secured: Secured, properties: Mapping[str, str], tmp_path: Path
) -> None:
    before = read(secured.bootstrap, TOPIC)
    query = FakeQuery(tmp_path / "checkpoint", properties["bootstrap.servers"], TOPIC)
    query.options = {f"kafka.{key}": value for key, value in properties.items()}
    assert timeout_ms(translate_options(query.options).connection, None) == 900_000
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    driver.commit(attempt, query.run_tasks(attempt))
    assert sorted(read(secured.bootstrap, TOPIC)) == sorted(before + values_of(0, 0, 1))
