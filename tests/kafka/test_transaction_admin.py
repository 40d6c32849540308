"""Proves that the adapter returns of transactions what Java's Admin returns, that unavailable facts are part
of its answer, and that librdkafka's properties connect it as well."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import (
    AdminClient,
)
from kafka.errors import KafkaConnectionError
from kafka.protocol.admin.transactions import ListTransactionsResponse
from kafka.protocol.metadata import MetadataResponse

from fenceline.decode import text
from fenceline.facts import OPEN_STATES, TransactionState
from fenceline.kafka.reconcile import Described, Listed, NotDescribed, Obstacle
from sandbox.kafka import Broker
from sandbox.ports import free_port
from tests.brokers import KEEP_OLD_START, create_topics
from tests.cases import cases
from tests.java.clients import Description, JavaAdmin, Listing
from tests.kafka.doctor_checks import grant_describe, signed_in
from tests.kafka.producers import LibrdkafkaProducer
from tests.kafka.transactional_ids import initialise_ids
from tests.waiting import wait_for
from transaction_admin.api import AdminUnavailable
from transaction_admin.kafka_python import TransactionAdmin, _collect, _leaderless
from transaction_admin.properties import CannotTranslate

pytestmark = pytest.mark.kafka

TOPIC = "admin-contract"
STATES = {
    "contract-empty": TransactionState.EMPTY,
    "contract-ongoing": TransactionState.ONGOING,
    "contract-commit": TransactionState.COMPLETE_COMMIT,
    "contract-abort": TransactionState.COMPLETE_ABORT,
}
STRANGE = (
    "contract back\\slash",
    "contract-ü-✓-𝄞",
    "contract-tab\t-nul\x00-del\x7f",
    "contract/../%2e?#&",
    "contract-" + "x" * 1_000,
)


@pytest.fixture
def admin(kafka: Broker) -> Iterator[TransactionAdmin]:
    client = TransactionAdmin({"bootstrap.servers": kafka.bootstrap})
    yield client
    client.close()


def reach_every_state(bootstrap: str) -> None:
    """Bring an id into each state that lasts."""
    create_topics(bootstrap, TOPIC)
    for name, state in STATES.items():
        producer = LibrdkafkaProducer(bootstrap, name)
        producer.init()
        if state is not TransactionState.EMPTY:
            producer.begin()
            producer.send(TOPIC, 0)
            producer.send(TOPIC, 2)
            producer.flush()
        if state is TransactionState.COMPLETE_COMMIT:
            producer.commit()
        elif state is TransactionState.COMPLETE_ABORT:
            producer.abort()
        producer.abandon()
    initialise_ids(bootstrap, STRANGE)


def as_java(said: Described | NotDescribed) -> Description:
    assert isinstance(said, Described), said
    pairs = frozenset((topic, number) for topic, numbers in said.partitions for number in numbers)
    return Description(
        said.state.value, said.timeout_ms, said.started_ms, said.producer_id, said.producer_epoch, pairs
    )


@pytest.mark.versioned
def test_lists_and_descriptions_equal_java_s(
    kafka: Broker, admin: TransactionAdmin, oracle: JavaAdmin
) -> None:
    reach_every_state(kafka.bootstrap)
    names = [*STATES, *STRANGE]
    wait_for(
        lambda: {said.state for said in oracle.describe_transactions(names).values()}.isdisjoint(
            {"PrepareCommit", "PrepareAbort"}
        ),
        "all markers are written",
    )
    listing = admin.list_transactions()
    assert listing.unseen == ()
    assert {name: Listing(said.producer_id, said.state.value) for name, said in listing.entries.items()} == {
        text.escape_bytes(name.encode()): said for name, said in oracle.list_transactions().items()
    }
    assert {name: listing.entries[name].state for name in STATES} == STATES
    escaped = [text.escape_bytes(name.encode()) for name in names]
    said = admin.describe_transactions(escaped)
    assert list(said) == escaped
    assert {name: as_java(each) for name, each in said.items()} == {
        text.escape_bytes(name.encode()): each for name, each in oracle.describe_transactions(names).items()
    }
    for state in TransactionState:
        listed = admin.list_transactions([state]).entries
        assert listed == {name: each for name, each in listing.entries.items() if each.state is state}
    opened = admin.list_transactions(OPEN_STATES).entries
    assert "contract-ongoing" in opened
    assert "contract-commit" not in opened


@pytest.mark.versioned
def test_an_id_that_was_initialised_again_is_described_as_java_does(
    kafka: Broker, admin: TransactionAdmin, oracle: JavaAdmin
) -> None:
    create_topics(kafka.bootstrap, name := "admin-again")
    for _ in range(2):
        producer = LibrdkafkaProducer(kafka.bootstrap, name)
        producer.init()
        producer.begin()
        producer.send(name, 1)
        producer.commit()
    initialise_ids(kafka.bootstrap, [name])
    said = admin.describe_transactions([name])[name]
    assert as_java(said) == oracle.describe_transactions([name])[name]
    assert isinstance(said, Described)
    # Only an old coordinator's memory still has the start of the transaction before.
    assert (said.started_ms is None) == (kafka.version not in KEEP_OLD_START)


@pytest.mark.versioned
def test_an_unknown_id_is_reported_as_unknown_and_not_created(kafka: Broker, admin: TransactionAdmin) -> None:
    initialise_ids(kafka.bootstrap, ["contract-known"])
    said = admin.describe_transactions(["contract-known", "contract-never-made", ""])
    assert isinstance(said["contract-known"], Described)
    for name in "contract-never-made", "":
        answer = said[name]
        assert isinstance(answer, NotDescribed)
        assert name not in admin.list_transactions().entries
    assert said["contract-never-made"].obstacle is Obstacle.UNKNOWN  # type: ignore[union-attr]


def test_a_thousand_and_more_ids_are_described_at_once(
    kafka: Broker, admin: TransactionAdmin, oracle: JavaAdmin
) -> None:
    names = [f"contract-many-{number}" for number in range(1_001)]
    initialise_ids(kafka.bootstrap, names)
    before = admin.cost
    said = admin.describe_transactions(names)
    assert {name: as_java(each) for name, each in said.items()} == oracle.describe_transactions(names)
    # The topic, and twice the coordinators and the descriptions: a thousand ids to a request.
    assert admin.cost.requests - before.requests == 5
    assert admin.cost.broker_ms > before.broker_ms


def test_a_broker_that_restarts_is_polled_again(acl_broker: Broker) -> None:
    before = _io_threads()
    initialise_ids(acl_broker.bootstrap, ["kept"])
    admin = TransactionAdmin({"bootstrap.servers": acl_broker.bootstrap})
    kept = set(admin.list_transactions().entries)
    assert "kept" in kept
    acl_broker.stop()
    try:
        with pytest.raises(AdminUnavailable, match=acl_broker.bootstrap):
            admin.list_transactions()
    finally:
        acl_broker.start()
        acl_broker.wait_ready()

    def listed() -> set[str]:
        try:
            return set(admin.list_transactions().entries)
        except AdminUnavailable:
            return set()

    wait_for(lambda: listed() == kept, "the list is whole again")
    admin.close()
    assert _io_threads() <= before


def _io_threads() -> set[threading.Thread]:
    """The clients' own threads; other tests of this process may have left some."""
    return {each for each in threading.enumerate() if each.name == "kafka-io-fenceline"}


def test_facts_that_a_broker_does_not_report_are_named() -> None:
    def answer(error: int, *states: str) -> ListTransactionsResponse:
        row = ListTransactionsResponse.TransactionState
        rows = [row(transactional_id=f"id-{word}", producer_id=7, transaction_state=word) for word in states]
        return ListTransactionsResponse(error_code=error, transaction_states=rows)

    entries: dict[str, Listed] = {}
    expected = ["1 id in state Dead, which Fenceline does not know"]
    assert list(_collect(answer(0, "Ongoing", "Dead"), entries)) == expected
    assert entries == {"id-Ongoing": Listed(TransactionState.ONGOING, 7)}
    (loading,) = _collect(answer(14, "Empty"), entries)
    assert "still loading" in loading
    (other,) = _collect(answer(15), entries)
    assert "COORDINATOR_NOT_AVAILABLE" in other
    (gone,) = _collect(KafkaConnectionError("socket disconnected"), entries)
    assert "socket disconnected" in gone
    assert set(entries) == {"id-Ongoing"}
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition
    places = ((0, 1), (1, -1), (2, 3))
    leaders = [partition(partition_index=number, leader_id=leader) for number, leader in places]
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=1)]
    leaderless = _leaderless(MetadataResponse(brokers=brokers, topics=[topic(partitions=leaders)]))
    assert [str(unseen).partition(":")[0] for unseen in leaderless] == [
        "__transaction_state-1",
        "__transaction_state-2",
    ], "nobody lists the ids of a leader that is no broker either"


@pytest.mark.parametrize("secure", [False, True])
def test_the_same_properties_connect_librdkafka(acl_broker: Broker, secure: bool) -> None:
    """Those that librdkafka alone has a use for do no harm."""
    properties = signed_in(acl_broker, "viewer") if secure else {"bootstrap.servers": acl_broker.bootstrap}
    properties |= {
        "client.id": "fenceline",
        "socket.timeout.ms": "9000",
        "reconnect.backoff.ms": "100",
        "metadata.max.age.ms": "60000",
        "fetch.wait.max.ms": "10",
        "log_level": "0",
        "topic.metadata.refresh.interval.ms": "60000",
        "broker.address.family": "any",
        "client.dns.lookup": "use_all_dns_ips",
    }
    assert AdminClient({**properties}).list_topics(timeout=10).brokers
    admin = TransactionAdmin(properties)
    assert admin.list_transactions().unseen == ()
    admin.close()


def test_ids_hidden_by_acls_are_left_out_and_the_answer_warns_of_it(acl_broker: Broker) -> None:
    initialise_ids(acl_broker.bootstrap, ["guarded-a", "guarded-b"])
    grant_describe(acl_broker, "viewer", "guarded-a")
    with closing(TransactionAdmin(signed_in(acl_broker, "viewer"))) as admin:
        listing = admin.list_transactions()
        assert set(listing.entries) == {"guarded-a"}
        assert listing.unseen == ()
        assert "without an error" in listing.may_hide
        assert "--allow-principal User:viewer --operation DESCRIBE --transactional-id '*'" in listing.may_hide
        said = admin.describe_transactions(["guarded-a", "guarded-b"])
    assert isinstance(said["guarded-a"], Described)
    refused = said["guarded-b"]
    assert isinstance(refused, NotDescribed)
    assert refused.obstacle is Obstacle.FORBIDDEN
    assert "--allow-principal User:viewer --operation DESCRIBE --transactional-id 'guarded-b'" in refused.text


def test_without_any_right_no_lookup_creates_the_topic(acl_broker: Broker) -> None:
    with closing(TransactionAdmin(signed_in(acl_broker, "nobody"))) as admin:
        assert admin.list_transactions().entries == {}
        said = admin.describe_transactions(["guarded-a"])["guarded-a"]
        # One that was listed elsewhere proves that the topic exists.
        known = admin.describe_transactions(["guarded-a"], listed=True)["guarded-a"]
    assert isinstance(known, NotDescribed)
    assert known.obstacle is Obstacle.FORBIDDEN
    assert isinstance(said, NotDescribed)
    assert said.obstacle is Obstacle.UNSEEN
    assert "--allow-principal User:nobody --operation DESCRIBE --topic __transaction_state" in said.text


@cases(
    ({"sasl.password": "wrong"}, '"sasl.password"'),
    ({"sasl.mechanisms": "SCRAM-SHA-512"}, '"sasl.mechanism"'),
    ({"security.protocol": "plaintext"}, '"security.protocol"'),
    ({"security.protocol": "sasl_ssl"}, "TLS failed"),
)
def test_a_refused_connection_names_the_property_to_change(
    acl_broker: Broker, properties: dict[str, str], remedy: str
) -> None:
    with pytest.raises(AdminUnavailable) as refused:
        TransactionAdmin({**signed_in(acl_broker, "viewer"), **properties}, timeout_s=5)
    assert remedy in str(refused.value)
    assert acl_broker.sasl_bootstrap in str(refused.value)
    assert "rightful" not in str(refused.value)
    assert "wrong" not in str(refused.value)


def test_an_address_without_a_broker_is_refused_with_a_remedy() -> None:
    where = f"127.0.0.1:{free_port()}"
    with pytest.raises(AdminUnavailable, match="check that it runs") as refused:
        TransactionAdmin({"bootstrap.servers": where}, timeout_s=5)
    assert where in str(refused.value)


@cases(
    ("sasl.kerberos.keytabs", "/etc/keytab"),
    ("ssl.keystore.location", "/nowhere/store.p12"),
    ("ssl.ca.location", "/nowhere/ca.pem"),
    ("broker.address.family", "v6"),
    ("reconnect.backoff.ms", "soon"),
    ("no.such.key", "1"),
)
def test_a_property_that_kafka_python_lacks_is_refused_by_name(key: str, value: str) -> None:
    properties = {"bootstrap.servers": "localhost:1", "security.protocol": "ssl", key: value}
    with pytest.raises(CannotTranslate) as refused:
        TransactionAdmin(properties)
    assert refused.value.key == key
    assert f'"{key}"' in str(refused.value)
