"""Proves that whoever reads a new cluster creates nothing in it: no topic for transactions or offsets, also
where the broker creates topics that are requested.

All of them read one broker, to which nobody writes.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from collectors.doctor.examination import CheckStatus
from collectors.kafka.internal_topics import NoSuchTopic, Tail
from fenceline.kafka.reconcile import NotDescribed, Obstacle
from sandbox.kafka import Broker
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.doctor_checks import run_doctor
from transaction_admin.api import Unseen
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker to which nobody writes."""
    folder = tmp_path_factory.mktemp("kafka")
    with Broker(folder, properties={"auto.create.topics.enable": "true"}) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _nothing_is_created(broker: Broker) -> Iterator[None]:
    yield
    assert not AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics


def test_transactions_are_listed_and_described(broker: Broker) -> None:
    with closing(TransactionAdmin({"bootstrap.servers": broker.bootstrap})) as admin:
        assert admin.list_transactions().entries == {}
        said = admin.describe_transactions(["nobody"])["nobody"]
    assert isinstance(said, NotDescribed)
    assert said.obstacle is Obstacle.UNKNOWN
    assert "__transaction_state" in said.text


def test_an_unknown_group_is_not_looked_up(broker: Broker) -> None:
    with closing(ClusterReads({"bootstrap.servers": broker.bootstrap}, 20)) as reads:
        unseen = reads.committed_offsets(["nobody"], require_stable=True)["nobody"]
        assert isinstance(unseen, Unseen), "without a topic nobody can tell"
        assert "could create it" in unseen.reason
        assert reads.list_groups().groups == {}
        assert reads.transactional_ids([7]) == {}
        assert reads.describe_topology().partitions == {}


@pytest.mark.django_db
def test_groups_are_polled(broker: Broker) -> None:
    collected = CollectedGroups({"bootstrap.servers": broker.bootstrap}, log=False)
    assert collected.poll(2) == {}
    collected.close()


def test_a_tail_has_no_such_topic(broker: Broker) -> None:
    tail = Tail({"bootstrap.servers": broker.bootstrap})
    with pytest.raises(NoSuchTopic):
        tail.seek("", {})
    tail.close()


def test_a_doctor_checks_an_empty_cluster(broker: Broker) -> None:
    found = {each.what: each for each in run_doctor({"bootstrap.servers": broker.bootstrap})}
    for name in "__transaction_state", "__consumer_offsets":
        check = found[f"READ on topic {name}"]
        assert (check.status, "does not exist yet" in check.detail) == (CheckStatus.OK, True)
