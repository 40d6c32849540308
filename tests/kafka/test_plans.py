"""Proves on a real broker what each open transaction is offered, what is refused and why: the whole table of
docs/acting.md. What is hanging is hanging by a direct check, whatever the stored rows are. (Prepare* lasts
where a leader is away: `tests/unit/test_plans_*.py` has it.)"""

import random
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from dashboard.actions import inspect, planning
from dashboard.models import Cluster, Group, GroupOffset
from dashboard.runtime import loop
from fenceline.decode import text
from fenceline.kafka.groups import GroupStatus, Waiting
from fenceline.kafka.reconcile import NotDescribed, Obstacle
from fenceline.limits import Limits
from fenceline.plans.plan import MOST_SUBJECTS, Act, RefusalReason
from sandbox.kafka import Broker
from sandbox.ports import free_port
from sandbox.scenes.wire import Identity
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.cases import cases
from tests.kafka.doctor_checks import grant_describe, signed_in
from tests.kafka.driven import only_cluster
from tests.kafka.planning_cluster import PlanningCluster, effect_amounts, refusal_reasons, refusal_texts
from tests.kafka.producers import open_in
from tests.kafka.random_transactions import LONG_MS
from tests.kafka.stray_records import identity_of, verification_disabled, write_stray_records
from tests.kafka.transactional_ids import initialise_ids
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

#: Later than any transaction here is healthy: past its limit, and silent for a minute.
LATER_MS = 90_000
FENCE, MARKER = Act.FENCE, Act.ABORT_MARKER


@pytest.fixture
def planner(kafka: Broker) -> Iterator[PlanningCluster]:
    made = PlanningCluster(kafka)
    yield made
    made.close()


@pytest.fixture
def planner_42(kafka_42: Broker) -> Iterator[PlanningCluster]:
    made = PlanningCluster(kafka_42)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    """A name for an id and a topic."""
    return f"plans-{random.getrandbits(40):x}-x"


def test_abandoned_is_offered_a_fence_and_no_marker(planner: PlanningCluster, name: str) -> None:
    create_topics(planner.broker.bootstrap, name)
    open_in(planner.broker.bootstrap, name, name, 0, 2, records=3)
    planner.collected.poll_repeatedly()
    found = planner.plan(FENCE, name, later_ms=LATER_MS)
    (subject,) = found.subjects
    assert refusal_reasons(found) == [[]]
    assert (found.confirm, found.forced, found.warnings) == (name, False, ())
    assert subject.subject == f"transaction:{name}"
    assert set(subject.seen) == {
        "transactional_id", "producer_id", "producer_epoch", "started_ms", "timeout_ms", "state",
    }  # fmt: skip
    assert (subject.seen["state"], subject.seen["timeout_ms"]) == ("Ongoing", LONG_MS)
    assert [each.request for each in subject.steps] == ["InitProducerId"]
    assert subject.held == ((name, 0, 0, 3, 3), (name, 2, 0, 3, 3))
    assert effect_amounts(found) == [{"records_released": 0, "records_lost": 6, "producer_fenced": None}]
    refused = planner.plan(MARKER, f"{name}-0", f"{name}-2@0", f"{name}-1", force=True)
    expected = [[RefusalReason.NOT_HANGING], [RefusalReason.NOT_HANGING], [RefusalReason.NOTHING_OPEN]]
    assert refusal_reasons(refused) == expected
    assert f"The coordinator still owns this: {name} has {name}-0 at offset 0 open" in refusal_texts(refused)
    assert refused.doable_subjects == ()


def test_hanging_is_offered_a_marker_and_no_fence(planner: PlanningCluster, name: str) -> None:
    """Also where no collector has polled yet."""
    create_topics(planner.broker.bootstrap, name)
    given = identity_of(planner.broker, name)
    with verification_disabled(planner.broker):
        write_stray_records(planner.broker, name, given, (name, 1), records=4)
    found = planner.plan(MARKER, f"{name}-1")
    (subject,) = found.subjects
    assert refusal_reasons(found) == [[]]
    assert subject.seen == {
        "topic": name, "partition": 1, "producer_id": given.producer_id, "producer_epoch": given.epoch,
        "start_offset": 0, "leader": 1, "leader_epoch": 0, "coordinator_epoch": 0,
    }  # fmt: skip
    assert [each.request for each in subject.steps] == ["WriteTxnMarkers"]
    assert subject.held == ((name, 1, 0, 4, 4),)
    assert effect_amounts(found) == [{"records_released": 0, "records_lost": 4}]
    assert (subject.title, found.confirm) == (f"{name}-1 at offset 0", name)
    planner.collected.poll_repeatedly()
    refused = planner.plan(FENCE, name, later_ms=LATER_MS, force=True)
    assert refusal_reasons(refused) == [[RefusalReason.NOTHING_OPEN]]
    assert f"{name}-1 holds a transaction of it that hangs" in refusal_texts(refused)


def test_each_of_several_transactions_in_a_partition_is_planned(
    planner_42: PlanningCluster, name: str
) -> None:
    """Two hang, one before and one behind an open one; the producer id of one of them belongs to no id."""
    broker = planner_42.broker
    create_topics(broker.bootstrap, name)
    given = identity_of(broker, f"{name}-1-stray")
    with verification_disabled(broker):
        write_stray_records(broker, f"{name}-1-stray", given, (name, 0))
        open_in(broker.bootstrap, name, name, 0)
        write_stray_records(broker, "nobody", Identity(900_000_000_000, 0), (name, 0), records=2)
    found = planner_42.plan(MARKER, f"{name}-0")
    assert [each.title for each in found.subjects] == [f"{name}-0 at offset 0", f"{name}-0 at offset 2"]
    expected = [{"records_released": 0, "records_lost": 1}, {"lso_stays": 1, "records_lost": 2}]
    assert effect_amounts(found) == expected
    assert found.confirm == f"{planner_42.cluster} 2"
    assert planner_42.plan(MARKER, f"{name}-0@0").confirm == f"{name}-1-stray"
    assert planner_42.plan(MARKER, f"{name}-0@2").confirm == f"{name}-0"
    assert refusal_reasons(planner_42.plan(MARKER, f"{name}-0@1")) == [[RefusalReason.NOT_HANGING]]
    assert refusal_reasons(planner_42.plan(MARKER, f"{name}-0@7")) == [[RefusalReason.ALREADY_ENDED]]
    # Named twice, it is planned once.
    assert len(planner_42.plan(MARKER, f"{name}-0", f"{name}-0@2").subjects) == 2


def test_a_plan_counts_blocked_groups_and_records(planner_42: PlanningCluster, name: str) -> None:
    broker = planner_42.broker
    create_topics(broker.bootstrap, name)
    open_in(broker.bootstrap, name, name, 0, records=2)
    for outcome in "commit", "abort":
        other = open_in(broker.bootstrap, f"{name}-{outcome}", name, 0, records=5)
        getattr(other, outcome)()
    behind = open_in(broker.bootstrap, f"{name}-behind", name, 0, records=1)
    add_group_at(planner_42.cluster, f"{name}-group", name, 0)
    found = planner_42.plan(FENCE, name, later_ms=LATER_MS)
    (subject,) = found.subjects
    expected = [{"records_released": 5, "groups_released": 1, "records_lost": 2, "producer_fenced": None}]
    assert effect_amounts(found) == expected
    assert subject.waiting == (f"{name}-group",)
    # The later one moves no LSO, unless the plan ends the first one before it.
    alone = planner_42.plan(FENCE, f"{name}-behind", later_ms=LATER_MS)
    assert effect_amounts(alone)[0].keys() == {"lso_stays", "records_lost", "producer_fenced"}
    both = planner_42.plan(FENCE, name, f"{name}-behind", later_ms=LATER_MS)
    assert both.subjects[1].held[0][:2] == (name, 0)
    assert both.confirm == f"{planner_42.cluster} 2"
    # What is refused ends nothing, and what is forced does.
    healthy = planner_42.plan(FENCE, name, f"{name}-behind")
    assert [each.is_refused for each in healthy.subjects] == [True, True]
    assert healthy.subjects[1].held == ()
    assert planner_42.plan(FENCE, name, f"{name}-behind", force=True).subjects[1].held
    behind.commit()


def add_group_at(cluster: str, group: str, topic: str, offset: int) -> None:
    """Add the rows of a group that is at an offset."""
    row = Group.objects.create(
        cluster=Cluster.objects.get(name=cluster), key=group.encode(), group_id=group, family=group,
        status=GroupStatus.STALL, seen_ms=0, rev=0,
    )  # fmt: skip
    GroupOffset.objects.create(
        group=row, topic=topic, partition=0, offset=offset, status=row.status,
        waiting=Waiting.PROBABLY.value,
    )  # fmt: skip


def test_a_healthy_transaction_is_only_ended_by_force(planner_42: PlanningCluster, name: str) -> None:
    create_topics(planner_42.broker.bootstrap, name)
    producer = open_in(planner_42.broker.bootstrap, name, name, 0)
    found = planner_42.plan(FENCE, name)
    assert refusal_reasons(found) == [[RefusalReason.HEALTHY]]
    assert found.doable_subjects == ()
    forced = planner_42.plan(FENCE, name, force=True)
    assert refusal_reasons(forced) == [[]]
    assert forced.forced
    assert [each.ground for each in forced.overridden] == [RefusalReason.HEALTHY]
    assert forced.warnings[0].startswith(f"It fences a producer that may still be running: {name}")
    assert forced.digest != found.digest
    # Within a limit of an hour it is healthy for as long as it writes, by our own sight of that.
    planner_42.limits = Limits(open_too_long_s=3_600)
    planner_42.collected.poll_repeatedly()
    assert refusal_reasons(planner_42.plan(FENCE, name, later_ms=LATER_MS)) == [[]]
    producer.send(name, 0)
    producer.flush()
    assert refusal_reasons(planner_42.plan(FENCE, name, later_ms=LATER_MS)) == [[RefusalReason.HEALTHY]]
    # Past a short limit it is offered at once, with the warning.
    planner_42.limits = Limits(open_too_long_s=0.001)
    found = planner_42.plan(FENCE, name)
    assert (refusal_reasons(found), len(found.warnings)) == ([[]], 1)


def test_an_id_of_flinks_shape_is_planned_with_a_warning(planner_42: PlanningCluster, name: str) -> None:
    create_topics(planner_42.broker.bootstrap, name)
    flink = f"{name}-0-17"
    open_in(planner_42.broker.bootstrap, flink, name, 0)
    planner_42.collected.poll_repeatedly()
    found = planner_42.plan(FENCE, flink, later_ms=LATER_MS)
    assert refusal_reasons(found) == [[]]
    assert found.subjects[0].steps
    assert any("this may lose checkpointed data" in each for each in found.warnings)


def test_an_unknown_id_is_refused_and_stays_unknown(planner: PlanningCluster, name: str) -> None:
    found = planner.plan(FENCE, name, force=True)
    assert refusal_reasons(found) == [[RefusalReason.UNKNOWN_ID]]
    with planner.configured(), inspect.connect_cluster(planner.cluster, loop.now_ms()) as look:
        said = inspect.describe_ids(look, [name])[name]
    assert isinstance(said, NotDescribed)
    assert said.obstacle is Obstacle.UNKNOWN


ODD = (
    "plans \\\\ back",
    "plans-ü-✓-𝄞",
    "plans-tab\\x09-nul\\x00",
    "plans/../%2e?#&",
    "plans-" + "x" * 32_700,
)


def test_odd_ids_are_planned_like_any_other(planner_42: PlanningCluster, name: str) -> None:
    broker, ids = planner_42.broker, list(ODD)
    assert [text.escape_bytes(text.unescape_text(each)) for each in ids] == ids
    initialise_ids(broker.bootstrap, [text.unescape_text(each).decode() for each in ids])
    create_topics(broker.bootstrap, name)
    found = planner_42.plan(FENCE, *ids)
    assert refusal_reasons(found) == [[RefusalReason.NOTHING_OPEN]] * len(ids)
    assert [each.seen["transactional_id"] for each in found.subjects] == ids
    # librdkafka ends an id at a NUL.
    strange = f"{name}-ü\\\\-✓\\x09"
    open_in(broker.bootstrap, text.unescape_text(strange).decode(), name, 0)
    made = planner_42.plan(FENCE, strange, later_ms=LATER_MS)
    assert (refusal_reasons(made), made.confirm) == ([[]], strange)
    # Written otherwise, it is the same id.
    other = strange.replace("ü", "\\xc3\\xbc")
    assert planner_42.plan(FENCE, other, strange, later_ms=LATER_MS).confirm == strange


def test_fifty_subjects_in_one_plan(planner_42: PlanningCluster, name: str) -> None:
    create_topics(planner_42.broker.bootstrap, name)
    ids = [f"{name}-{number}-id" for number in range(MOST_SUBJECTS)]
    initialise_ids(planner_42.broker.bootstrap, ids[1:])
    open_in(planner_42.broker.bootstrap, ids[0], name, 0)
    found = planner_42.plan(FENCE, *ids, later_ms=LATER_MS)
    assert [each.is_refused for each in found.subjects] == [False] + [True] * (MOST_SUBJECTS - 1)
    assert found.confirm == f"{planner_42.cluster} 1"
    assert refusal_reasons(planner_42.plan(MARKER, *[f"{name}-{n}" for n in range(MOST_SUBJECTS)]))[3:] == [
        [RefusalReason.NOT_SEEN]
    ] * (MOST_SUBJECTS - 3)


@cases(
    (FENCE, [], "No subject is named"),
    (FENCE, [f"id-{number}" for number in range(MOST_SUBJECTS + 1)], "51 subjects are named"),
    (FENCE, ["back\\slash"], "the backslash at character 5 starts no escape"),
    (FENCE, [""], "Kafka takes 1 to 32,767"),
    (FENCE, ["x" * 32_768], "it has 32,768 bytes"),
    (MARKER, ["payments"], "is no partition: write topic-partition"),
    (MARKER, ["payments-0@-1"], "is no partition"),
    (MARKER, ["pay ments-0"], "is no partition"),
    (MARKER, ["payments-99999999999"], "is no partition"),
    (Act.FINISH_BATCH, ["orders"], "is no batch"),
    (Act.FINISH_BATCH, ["orders@"], "is no batch"),
    (Act.ROLL_BACK_BATCH, ["orders@-1"], "is no batch"),
)
def test_an_impossible_plan_is_refused_with_a_remedy(
    planner_42: PlanningCluster, act: Act, subjects: Sequence[str], said: str
) -> None:
    with pytest.raises(planning.CannotPlan) as refused:
        planner_42.plan(act, *subjects)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 400


def test_an_unknown_or_unreachable_cluster_is_refused(planner_42: PlanningCluster) -> None:
    with planner_42.configured(), pytest.raises(planning.CannotPlan) as refused:
        planning.make_plan("nowhere", FENCE, ["a"], force=False, now_ms=0)
    assert str(refused.value) == f"No cluster 'nowhere' is configured; known are: {planner_42.cluster}."
    for changed, said in (
        ({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, "check that it runs"),
        ({"ssl.engine.location": "x"}, '"ssl.engine.location"'),
    ):
        with (
            only_cluster(planner_42.cluster, {**planner_42.collected.properties, **changed}),
            pytest.raises(planning.CannotPlan, match=said),
        ):
            planning.make_plan(planner_42.cluster, FENCE, ["a"], force=False, now_ms=0)


def test_with_hidden_ids_the_verdict_is_unknown_and_no_marker_is_offered(
    acl_broker: Broker, name: str
) -> None:
    """One is open under a hidden id, one hangs: their facts are the same."""
    create_topics(acl_broker.bootstrap, name)
    set_acl(acl_broker, "planner", ResourceType.TOPIC, name, AclOperation.READ)
    set_acl(acl_broker, "planner", ResourceType.TOPIC, "__transaction_state", AclOperation.DESCRIBE)
    open_in(acl_broker.bootstrap, name, name, 0)
    planner = PlanningCluster(acl_broker, properties=signed_in(acl_broker, "planner"), vouched=False)
    try:
        wait_for(
            lambda: refusal_reasons(planner.plan(MARKER, f"{name}-0")) == [[RefusalReason.IDS_HIDDEN]],
            "it is hidden",
            30,
        )
        found = planner.plan(MARKER, f"{name}-0", force=True)
        assert refusal_reasons(found) == [[RefusalReason.IDS_HIDDEN]]
        assert "sees_all_transactional_ids = true" in refusal_texts(found)
        assert "--allow-principal User:planner --operation DESCRIBE --transactional-id '*'" in refusal_texts(
            found
        )
        refused = planner.plan(FENCE, name, force=True)
        assert refusal_reasons(refused) == [[RefusalReason.FORBIDDEN]]
        assert "--operation DESCRIBE" in refusal_texts(refused)
        grant_describe(acl_broker, "planner", name)
        wait_for(
            lambda: refusal_reasons(planner.plan(FENCE, name, later_ms=LATER_MS)) == [[]],
            "it may be seen",
            30,
        )
        assert refusal_reasons(planner.plan(MARKER, f"{name}-0")) == [[RefusalReason.NOT_HANGING]]
        # A topic that may not be read tells nothing of who writes there.
        create_topics(acl_broker.bootstrap, f"{name}-2")
        assert refusal_reasons(planner.plan(MARKER, f"{name}-2-0")) == [[RefusalReason.NOT_SEEN]]
    finally:
        planner.collected.close()


def test_a_producer_without_an_id_may_be_hidden(planner_42: PlanningCluster, name: str) -> None:
    create_topics(planner_42.broker.bootstrap, name)
    with verification_disabled(planner_42.broker):
        write_stray_records(planner_42.broker, "nobody", Identity(900_000_000_001, 0), (name, 0))
    assert refusal_reasons(planner_42.plan(MARKER, f"{name}-0")) == [[]]
    planner_42.vouched = False
    assert refusal_reasons(planner_42.plan(MARKER, f"{name}-0")) == [[RefusalReason.IDS_HIDDEN]]
