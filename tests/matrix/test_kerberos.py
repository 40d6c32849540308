"""Proves on a real KDC that lists, groups and acts sign in by Kerberos, from a key tab, and go on when
tickets and sessions expire; and that what librdkafka's wheel was built without is named, with what to do.

`make test-matrix` installs the KDC and the package gssapi."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from collectors.doctor.examination import CheckStatus
from collectors.kafka.clients import CannotSee
from collectors.kafka.internal_topics import Tail
from fenceline.facts import TopicPartition, TransactionState
from fenceline.kafka.reconcile import Described
from sandbox.ports import HOST
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.factory import chosen_timeout_ms, make_options
from tests.brokers import create_topics
from tests.kafka.doctor_checks import run_doctor
from tests.kafka.producers import open_in
from tests.kerberos import REALM, KerberosBroker, Realm, is_installed
from transaction_admin.api import AdminUnavailable, Ending, Fencing, Marker
from transaction_admin.kafka_python import KafkaPythonAdmin
from transaction_admin.kafka_reads import KafkaPythonReads

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
        "sasl.kerberos.keytab": str(realm.keytab("collector")),
    }  # fmt: skip


def open_transaction(broker: KerberosBroker, admin: KafkaPythonAdmin) -> Described:
    name = f"open-{uuid.uuid4().hex[:8]}"
    open_in(broker.bootstrap, name, TOPIC, 0).abandon()
    described = admin.describe_transactions([name])[name]
    assert isinstance(described, Described)
    return described


def test_lists_groups_and_acts(broker: KerberosBroker, properties: Mapping[str, str]) -> None:
    with (
        closing(KafkaPythonAdmin(properties, 20)) as admin,
        closing(KafkaPythonReads(properties, 20)) as reads,
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
    with closing(KafkaPythonAdmin(properties, 20)) as admin:
        until = time.monotonic() + 15
        while time.monotonic() < until:
            admin.list_transactions()
        described = open_transaction(broker, admin)
        assert described.state is TransactionState.ONGOING


def test_what_librdkafka_was_built_without_is_named(properties: Mapping[str, str]) -> None:
    said = "GSSAPI, which this librdkafka was built without"
    with pytest.raises(CannotSee, match=said):
        Tail(properties)
    kafka = {f"kafka.{key}": value for key, value in properties.items()}
    with pytest.raises(Refused, match=said):
        chosen_timeout_ms(make_options(kafka, None, None, None, 0.8, (), adopt=False))
    checks = {each.what: each for each in run_doctor(properties)}
    assert said in checks["sign-in by librdkafka"].detail
    assert checks["sign-in by kafka-python"].status is CheckStatus.OK


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.kerberos.keytab": "/nowhere/a.keytab"}, "Kerberos gives no ticket"),
        ({"sasl.kerberos.principal": f"nobody@{REALM}"}, "Kerberos gives no ticket"),
        ({"sasl.kerberos.service.name": "casper"}, "Kerberos gives no ticket"),
    ],
)
def test_a_sign_in_without_a_ticket_is_one_sentence(
    properties: Mapping[str, str], changed: Mapping[str, str], said: str
) -> None:
    with pytest.raises(AdminUnavailable, match=said) as raised:
        KafkaPythonAdmin({**properties, **changed}, 5)
    assert "\n" not in str(raised.value)
