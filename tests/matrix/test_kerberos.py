"""Proves on a real KDC that lists, groups and acts sign in by Kerberos, from a key tab, and go on when
tickets and sessions expire; and that what librdkafka's wheel was built without is named, with what to do.

`make test-matrix` installs the KDC and the package gssapi."""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from collectors.doctor.examination import CheckStatus
from collectors.kafka.internal_topics import Tail
from fenceline.facts import TopicPartition, TransactionState
from fenceline.kafka.reconcile import Described
from sandbox.ports import HOST
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.factory import chosen_timeout_ms, make_options
from tests.brokers import create_topics
from tests.cases import cases
from tests.kafka.doctor_checks import run_doctor
from tests.kafka.producers import open_in
from tests.kafka.test_tail import read_all
from tests.kafka.transactional_ids import initialise_ids
from tests.kerberos import REALM, KerberosBroker, Realm, is_installed
from tests.spark.sink.queries import FakeQuery, read
from transaction_admin.api import AdminUnavailable, Ending, Fencing, Marker
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.skipif(not is_installed(), reason="krb5-kdc and krb5-admin-server are not installed"),
]
pytest.importorskip("gssapi")

TOPIC = "kerberos"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """Tickets live for eight seconds."""
    realm = Realm(tmp_path_factory.mktemp("realm"), "8s")
    realm.make()
    realm.keytab(f"kafka/{HOST}")
    with realm.running(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(realm.config))
        yield realm


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, realm: Realm) -> Iterator[KerberosBroker]:
    with KerberosBroker(tmp_path_factory.mktemp("kafka-kerberos"), realm=realm) as broker:
        create_topics(broker.bootstrap, TOPIC)
        yield broker


@pytest.fixture(scope="module")
def properties(broker: KerberosBroker, realm: Realm) -> Mapping[str, str]:
    return {
        "bootstrap.servers": f"{HOST}:{broker.kerberos_port}", "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": f"collector@{REALM}",
        # How often librdkafka asks for a ticket: more often than one expires.
        "sasl.kerberos.min.time.before.relogin": "3000",
        "sasl.kerberos.keytab": str(realm.keytab("collector")),
    }  # fmt: skip


def open_transaction(broker: KerberosBroker, admin: TransactionAdmin) -> Described:
    name = f"open-{uuid.uuid4().hex[:8]}"
    open_in(broker.bootstrap, name, TOPIC, 0).abandon()
    described = admin.describe_transactions([name])[name]
    assert isinstance(described, Described)
    return described


def test_lists_groups_and_acts(broker: KerberosBroker, properties: Mapping[str, str]) -> None:
    with (
        closing(TransactionAdmin(properties, 20)) as admin,
        closing(ClusterReads(properties, 20)) as reads,
    ):
        fenced, ended = (open_transaction(broker, admin) for _ in range(2))
        names = {fenced.transactional_id, ended.transactional_id}
        assert names <= admin.list_transactions([TransactionState.ONGOING]).entries.keys()
        assert reads.list_groups().unseen == ()
        fencing = Fencing(fenced.transactional_id, 60_000)
        assert admin.fence_producers([fencing], timeout_s=20)[fenced.transactional_id].code == 0
        ending = Ending(ended.transactional_id, ended.producer_id, ended.producer_epoch, commit=True)
        assert admin.end_transactions([ending], timeout_s=20)[ended.transactional_id].code == 0
        marker = Marker(TopicPartition(TOPIC, 0), ended.producer_id, ended.producer_epoch, 0)
        assert admin.write_abort_marker(marker, leader=broker.node_id).code == 0


def test_tickets_and_sessions_are_renewed_in_mid_run(
    broker: KerberosBroker, properties: Mapping[str, str]
) -> None:
    with closing(TransactionAdmin(properties, 20)) as admin:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            admin.list_transactions()
        described = open_transaction(broker, admin)
        assert described.state is TransactionState.ONGOING


def librdkafka_has_kerberos() -> bool:
    """Whether it was built here; the wheel is without."""
    try:
        Producer({"sasl.mechanism": "GSSAPI", "security.protocol": "SASL_PLAINTEXT", "log_level": 0})
    except KafkaException as error:
        return "No provider" not in error.args[0].str()
    return True


@pytest.mark.skipif(not librdkafka_has_kerberos(), reason="confluent-kafka is built without libsasl2")
def test_tail_and_sink_with_a_librdkafka_that_was_built_with_it(
    broker: KerberosBroker, properties: Mapping[str, str], tmp_path: Path
) -> None:
    """Between two records, and two looks of the tail, tickets and sessions expire."""
    # One of its own: others have transactions that stay open, and hide what comes behind them.
    topic = "kerberos-sink"
    create_topics(broker.bootstrap, topic)
    initialise_ids(broker.bootstrap, ["before"])
    query = FakeQuery(tmp_path / "checkpoint", properties["bootstrap.servers"], topic)
    query.options = {f"kafka.{key}": value for key, value in properties.items()}
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    with closing(Tail(properties)) as tail:
        tail.seek("", {})

        def values() -> Iterator[str]:
            yield "before"
            until = time.monotonic() + 15
            while time.monotonic() < until:
                tail.mark_saved(tail.poll(0.1))
            yield "after"

        written = query.run_task(attempt, 0, values())
        assert written is not None
        driver.commit(attempt, [written])
        initialise_ids(broker.bootstrap, ["after"])
        assert "after" in read_all(tail)
    assert read(broker.bootstrap, topic) == ["after", "before"]
    checks = {each.what: each.status for each in run_doctor(properties)}
    assert checks["sign-in"] is CheckStatus.OK


@pytest.mark.skipif(librdkafka_has_kerberos(), reason="confluent-kafka is built with libsasl2")
def test_what_librdkafka_was_built_without_is_named_by_the_sink_alone(properties: Mapping[str, str]) -> None:
    said = "GSSAPI, which this librdkafka was built without"
    with closing(Tail(properties)) as tail:
        tail.seek("", {})
    kafka = {f"kafka.{key}": value for key, value in properties.items()}
    with pytest.raises(Refused, match=said):
        chosen_timeout_ms(make_options(kafka))
    checks = {each.what: each for each in run_doctor(properties)}
    assert checks["sign-in"].status is CheckStatus.OK


@cases(
    {"sasl.kerberos.keytab": "/nowhere/a.keytab"},
    {"sasl.kerberos.principal": f"nobody@{REALM}"},
    {"sasl.kerberos.service.name": "casper"},
)
def test_a_sign_in_without_a_ticket_is_one_sentence(
    properties: Mapping[str, str], changed: Mapping[str, str]
) -> None:
    with pytest.raises(AdminUnavailable, match="Kerberos gives no ticket") as raised:
        TransactionAdmin({**properties, **changed}, 5)
    assert "\n" not in str(raised.value)
