"""Proves on a real broker that an id of a two-phase commit is fenced by an admin's force alone, and then is.

Such ids have a timeout that never ends, which a broker refuses to any other client: it is made while the
broker accepts any timeout, and fenced once it accepts only the usual ones.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.java_gateway import JavaGateway

from dashboard.models import Action
from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS
from fenceline.plans.plan import Act, RefusalReason
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin
from tests.kafka.action_worker import configured_cluster, execute_plan, make_plan, result_texts
from tests.kafka.planning_cluster import refusal_reasons
from tests.kafka.raw_producers import RawProducer
from tests.kafka.stray_records import identity_of

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

NAME = "two-phase"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker on which an id has a transaction open that never times out."""
    with Broker(tmp_path, properties={"transaction.max.timeout.ms": str(2**31 - 1)}) as broker:
        create_topics(broker.bootstrap, NAME, partitions=1)
        identity = identity_of(broker, NAME, TWO_PHASE_COMMIT_TIMEOUT_MS)
        producer = RawProducer(broker.bootstrap, NAME, identity=identity)
        producer.send(NAME, 0)
        producer.abandon()
        broker.stop()
        broker.properties = {}
        broker.start()
        broker.wait_ready()
        yield broker


def test_a_two_phase_id_is_fenced_by_force_with_an_accepted_timeout(
    broker: Broker, java: JavaGateway
) -> None:
    with (
        configured_cluster({"bootstrap.servers": broker.bootstrap}),
        JavaAdmin(java, broker.bootstrap) as admin,
    ):
        assert admin.describe_transactions([NAME])[NAME].timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS
        refused = make_plan(Act.FENCE, NAME, force=False)
        assert refusal_reasons(refused) == [[RefusalReason.TWO_PHASE, RefusalReason.HEALTHY]]
        forced = make_plan(Act.FENCE, NAME)
        assert "with a timeout of 1 min, since only a two-phase producer" in forced.subjects[0].steps[0].words
        row = execute_plan(forced)
        assert row.state == Action.State.DONE, result_texts(row)
        said = admin.describe_transactions([NAME])[NAME]
    assert (said.state, said.producer_epoch, said.timeout_ms) == ("Empty", 2, 60_000)
