"""Proves on a real broker what each open transaction is offered, what is refused and why: the whole table of
docs/acting.md. What is hanging is hanging by a direct look, whatever our rows say. (Prepare* lasts where a
leader is away: `tests/unit/test_plans_*.py` has it.)"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from django.test import override_settings

from dashboard.actions import inspect, planning
from dashboard.config import ClusterConfig, Config
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
from tests.kafka.desk import Desk, effects, grounds, words
from tests.kafka.idle import initialise
from tests.kafka.lives import LONG_MS
from tests.kafka.producers import open_in
from tests.kafka.strays import identity_of, stray, unverified
from tests.kafka.test_transaction_admin import grant_describe, guarded, signed_in
from tests.waiting import wait_for

__all__ = ["guarded"]

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

#: Later than any transaction here is healthy: past its limit, and silent for a minute.
LATER_MS = 90_000
FENCE, MARKER = Act.FENCE, Act.ABORT_MARKER


@pytest.fixture
def desk(kafka: Broker) -> Iterator[Desk]:
    made = Desk(kafka)
    yield made
    made.close()


@pytest.fixture
def desk_42(kafka_42: Broker) -> Iterator[Desk]:
    made = Desk(kafka_42)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    """An id, and a topic, whose name says nothing."""
    return f"plans-{random.getrandbits(40):x}-x"


def test_abandoned_is_offered_a_fence_and_no_marker(desk: Desk, name: str) -> None:
    create_topics(desk.broker.bootstrap, name)
    open_in(desk.broker.bootstrap, name, name, 0, 2, records=3)
    desk.watch.look_often()
    found = desk.plan(FENCE, name, later_ms=LATER_MS)
    (subject,) = found.subjects
    assert grounds(found) == [[]]
    assert (found.confirm, found.forced, found.warnings) == (name, False, ())
    assert subject.subject == f"transaction:{name}"
    assert set(subject.seen) == {
        "transactional_id", "producer_id", "producer_epoch", "started_ms", "timeout_ms", "state",
    }  # fmt: skip
    assert (subject.seen["state"], subject.seen["timeout_ms"]) == ("Ongoing", LONG_MS)
    assert [each.request for each in subject.steps] == ["InitProducerId"]
    assert subject.held == ((name, 0, 0, 3, 3), (name, 2, 0, 3, 3))
    assert effects(found) == [{"records_released": 0, "records_lost": 6, "producer_fenced": None}]

    refused = desk.plan(MARKER, f"{name}-0", f"{name}-2@0", f"{name}-1", force=True)
    assert grounds(refused) == [
        [RefusalReason.NOT_HANGING],
        [RefusalReason.NOT_HANGING],
        [RefusalReason.NOTHING_OPEN],
    ]
    assert f"The coordinator still owns this: {name} has {name}-0 at offset 0 open" in words(refused)
    assert refused.doable_subjects == ()


def test_hanging_is_offered_a_marker_and_no_fence(desk: Desk, name: str) -> None:
    """Also where no collector has looked there yet."""
    create_topics(desk.broker.bootstrap, name)
    given = identity_of(desk.broker, name)
    with unverified(desk.broker):
        stray(desk.broker, name, given, (name, 1), records=4)
    found = desk.plan(MARKER, f"{name}-1")
    (subject,) = found.subjects
    assert grounds(found) == [[]]
    assert subject.seen == {
        "topic": name, "partition": 1, "producer_id": given.producer_id, "producer_epoch": given.epoch,
        "start_offset": 0, "leader": 1, "leader_epoch": 0, "coordinator_epoch": 0,
    }  # fmt: skip
    assert [each.request for each in subject.steps] == ["WriteTxnMarkers"]
    assert subject.held == ((name, 1, 0, 4, 4),)
    assert effects(found) == [{"records_released": 0, "records_lost": 4}]
    assert (subject.title, found.confirm) == (f"{name}-1 at offset 0", name)

    desk.watch.look_often()
    refused = desk.plan(FENCE, name, later_ms=LATER_MS, force=True)
    assert grounds(refused) == [[RefusalReason.NOTHING_OPEN]]
    assert f"{name}-1 holds a transaction of it that hangs" in words(refused)


def test_several_in_one_partition(desk_42: Desk, name: str) -> None:
    """Two hang, one before and one behind an open one; of one of them nobody has the producer id."""
    broker = desk_42.broker
    create_topics(broker.bootstrap, name)
    given = identity_of(broker, f"{name}-1-stray")
    with unverified(broker):
        stray(broker, f"{name}-1-stray", given, (name, 0))
        open_in(broker.bootstrap, name, name, 0)
        stray(broker, "nobody", Identity(900_000_000_000, 0), (name, 0), records=2)
    found = desk_42.plan(MARKER, f"{name}-0")
    assert [each.title for each in found.subjects] == [f"{name}-0 at offset 0", f"{name}-0 at offset 2"]
    assert effects(found) == [
        {"records_released": 0, "records_lost": 1},
        {"lso_stays": 1, "records_lost": 2},
    ]
    assert found.confirm == f"{desk_42.cluster} 2"
    assert desk_42.plan(MARKER, f"{name}-0@0").confirm == f"{name}-1-stray"
    assert desk_42.plan(MARKER, f"{name}-0@2").confirm == f"{name}-0"
    assert grounds(desk_42.plan(MARKER, f"{name}-0@1")) == [[RefusalReason.NOT_HANGING]]
    assert grounds(desk_42.plan(MARKER, f"{name}-0@7")) == [[RefusalReason.ALREADY_ENDED]]
    # Named twice, it is planned once.
    assert len(desk_42.plan(MARKER, f"{name}-0", f"{name}-0@2").subjects) == 2


def test_who_waits_and_what_is_released_in_numbers(desk_42: Desk, name: str) -> None:
    broker = desk_42.broker
    create_topics(broker.bootstrap, name)
    open_in(broker.bootstrap, name, name, 0, records=2)
    for outcome in "commit", "abort":
        other = open_in(broker.bootstrap, f"{name}-{outcome}", name, 0, records=5)
        getattr(other, outcome)()
    behind = open_in(broker.bootstrap, f"{name}-behind", name, 0, records=1)
    stand_at(desk_42.cluster, f"{name}-group", name, 0)
    found = desk_42.plan(FENCE, name, later_ms=LATER_MS)
    (subject,) = found.subjects
    assert effects(found) == [
        {"records_released": 5, "groups_released": 1, "records_lost": 2, "producer_fenced": None}
    ]
    assert subject.waiting == (f"{name}-group",)
    # The later one moves no LSO, unless the plan ends the first one before it.
    alone = desk_42.plan(FENCE, f"{name}-behind", later_ms=LATER_MS)
    assert effects(alone)[0].keys() == {"lso_stays", "records_lost", "producer_fenced"}
    both = desk_42.plan(FENCE, name, f"{name}-behind", later_ms=LATER_MS)
    assert both.subjects[1].held[0][:2] == (name, 0)
    assert both.confirm == f"{desk_42.cluster} 2"
    # What is refused ends nothing, and what is forced does.
    healthy = desk_42.plan(FENCE, name, f"{name}-behind")
    assert [each.is_refused for each in healthy.subjects] == [True, True]
    assert healthy.subjects[1].held == ()
    assert desk_42.plan(FENCE, name, f"{name}-behind", force=True).subjects[1].held
    behind.commit()


def stand_at(cluster: str, group: str, topic: str, offset: int) -> None:
    """Let our rows know a group that stands at an offset."""
    row = Group.objects.create(
        cluster=Cluster.objects.get(name=cluster), key=group.encode(), group_id=group, family=group,
        status=GroupStatus.STALL, seen_ms=0, rev=0,
    )  # fmt: skip
    GroupOffset.objects.create(
        group=row, topic=topic, partition=0, offset=offset, status=row.status,
        waiting=Waiting.PROBABLY.value,
    )  # fmt: skip


def test_a_healthy_one_takes_force(desk_42: Desk, name: str) -> None:
    create_topics(desk_42.broker.bootstrap, name)
    producer = open_in(desk_42.broker.bootstrap, name, name, 0)
    found = desk_42.plan(FENCE, name)
    assert grounds(found) == [[RefusalReason.HEALTHY]]
    assert found.doable_subjects == ()
    forced = desk_42.plan(FENCE, name, force=True)
    assert grounds(forced) == [[]]
    assert forced.forced
    assert [each.ground for each in forced.overridden] == [RefusalReason.HEALTHY]
    assert forced.warnings[0].startswith(f"It kills a live producer: {name}")
    assert forced.digest != found.digest
    # Within a limit of an hour it is healthy for as long as it writes, by our own sight of that.
    desk_42.limits = Limits(open_too_long_s=3_600)
    desk_42.watch.look_often()
    assert grounds(desk_42.plan(FENCE, name, later_ms=LATER_MS)) == [[]]
    producer.send(name, 0)
    producer.flush()
    assert grounds(desk_42.plan(FENCE, name, later_ms=LATER_MS)) == [[RefusalReason.HEALTHY]]
    # Past a short limit it is offered at once, with the warning.
    desk_42.limits = Limits(open_too_long_s=0.001)
    found = desk_42.plan(FENCE, name)
    assert (grounds(found), len(found.warnings)) == ([[]], 1)


def test_an_id_of_flinks_shape_is_planned_with_a_warning(desk_42: Desk, name: str) -> None:
    create_topics(desk_42.broker.bootstrap, name)
    flink = f"{name}-0-17"
    open_in(desk_42.broker.bootstrap, flink, name, 0)
    desk_42.watch.look_often()
    found = desk_42.plan(FENCE, flink, later_ms=LATER_MS)
    assert grounds(found) == [[]]
    assert found.subjects[0].steps
    assert any("this may lose checkpointed data" in each for each in found.warnings)


def test_an_unknown_id_is_refused_and_stays_unknown(desk: Desk, name: str) -> None:
    found = desk.plan(FENCE, name, force=True)
    assert grounds(found) == [[RefusalReason.UNKNOWN_ID]]
    with desk.configured(), inspect.connect_cluster(desk.cluster, loop.now_ms()) as look:
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


def test_odd_ids_are_planned_like_any(desk_42: Desk, name: str) -> None:
    broker, ids = desk_42.broker, list(ODD)
    assert [text.escape_bytes(text.unescape_text(each)) for each in ids] == ids
    initialise(broker.bootstrap, [text.unescape_text(each).decode() for each in ids])
    create_topics(broker.bootstrap, name)
    found = desk_42.plan(FENCE, *ids)
    assert grounds(found) == [[RefusalReason.NOTHING_OPEN]] * len(ids)
    assert [each.seen["transactional_id"] for each in found.subjects] == ids
    # librdkafka ends an id at a NUL.
    strange = f"{name}-ü\\\\-✓\\x09"
    open_in(broker.bootstrap, text.unescape_text(strange).decode(), name, 0)
    made = desk_42.plan(FENCE, strange, later_ms=LATER_MS)
    assert (grounds(made), made.confirm) == ([[]], strange)
    # Written otherwise, it is the same id.
    other = strange.replace("ü", "\\xc3\\xbc")
    assert desk_42.plan(FENCE, other, strange, later_ms=LATER_MS).confirm == strange


def test_fifty_subjects_in_one_plan(desk_42: Desk, name: str) -> None:
    create_topics(desk_42.broker.bootstrap, name)
    ids = [f"{name}-{number}-id" for number in range(MOST_SUBJECTS)]
    initialise(desk_42.broker.bootstrap, ids[1:])
    open_in(desk_42.broker.bootstrap, ids[0], name, 0)
    found = desk_42.plan(FENCE, *ids, later_ms=LATER_MS)
    assert [each.is_refused for each in found.subjects] == [False] + [True] * (MOST_SUBJECTS - 1)
    assert found.confirm == f"{desk_42.cluster} 1"
    assert grounds(desk_42.plan(MARKER, *[f"{name}-{n}" for n in range(MOST_SUBJECTS)]))[3:] == [
        [RefusalReason.NOT_SEEN]
    ] * (MOST_SUBJECTS - 3)


@pytest.mark.parametrize(
    ("act", "subjects", "said"),
    [
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
    ],
)
def test_what_cannot_be_planned_says_what_to_do(
    desk_42: Desk, act: Act, subjects: Sequence[str], said: str
) -> None:
    with pytest.raises(planning.CannotPlan) as refused:
        desk_42.plan(act, *subjects)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_cluster_that_is_unknown_or_away(desk_42: Desk) -> None:
    with desk_42.configured(), pytest.raises(planning.CannotPlan) as refused:
        planning.make_plan("nowhere", FENCE, ["a"], force=False, now_ms=0)
    assert str(refused.value) == f"No cluster 'nowhere' is configured; known are: {desk_42.cluster}."
    away = ClusterConfig(desk_42.cluster, {"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    with override_settings(FENCELINE=Config(clusters={away.name: away})):
        with pytest.raises(planning.CannotPlan) as refused:
            planning.make_plan(away.name, FENCE, ["a"], force=False, now_ms=0)
        assert "check that it runs" in str(refused.value)
    strange = ClusterConfig(desk_42.cluster, {**desk_42.watch.properties, "ssl.engine.location": "x"})
    with override_settings(FENCELINE=Config(clusters={strange.name: strange})):
        with pytest.raises(planning.CannotPlan) as refused:
            planning.make_plan(strange.name, FENCE, ["a"], force=False, now_ms=0)
        assert '"ssl.engine.location"' in str(refused.value)


def test_hidden_ids_make_it_unknown_and_no_marker_is_offered(guarded: Broker, name: str) -> None:
    """One is open under an id that we may not see, one hangs: they look alike from here."""
    create_topics(guarded.bootstrap, name)
    set_acl(guarded, "viewer", ResourceType.TOPIC, name, AclOperation.READ)
    set_acl(guarded, "viewer", ResourceType.TOPIC, "__transaction_state", AclOperation.DESCRIBE)
    open_in(guarded.bootstrap, name, name, 0)
    desk = Desk(guarded, properties=signed_in(guarded, "viewer"), vouched=False)
    try:
        wait_for(
            lambda: grounds(desk.plan(MARKER, f"{name}-0")) == [[RefusalReason.IDS_HIDDEN]],
            "it is hidden",
            30,
        )
        found = desk.plan(MARKER, f"{name}-0", force=True)
        assert grounds(found) == [[RefusalReason.IDS_HIDDEN]]
        assert "sees_all_transactional_ids = true" in words(found)
        assert "--allow-principal User:viewer --operation DESCRIBE --transactional-id '*'" in words(found)
        refused = desk.plan(FENCE, name, force=True)
        assert grounds(refused) == [[RefusalReason.FORBIDDEN]]
        assert "--operation DESCRIBE" in words(refused)
        grant_describe(guarded, "viewer", name)
        wait_for(lambda: grounds(desk.plan(FENCE, name, later_ms=LATER_MS)) == [[]], "it may be seen", 30)
        assert grounds(desk.plan(MARKER, f"{name}-0")) == [[RefusalReason.NOT_HANGING]]
        # A topic that may not be read tells nothing of who writes there.
        create_topics(guarded.bootstrap, f"{name}-2")
        assert grounds(desk.plan(MARKER, f"{name}-2-0")) == [[RefusalReason.NOT_SEEN]]
    finally:
        desk.watch.close()


def test_what_nobody_has_may_be_hidden(desk_42: Desk, name: str) -> None:
    create_topics(desk_42.broker.bootstrap, name)
    with unverified(desk_42.broker):
        stray(desk_42.broker, "nobody", Identity(900_000_000_001, 0), (name, 0))
    assert grounds(desk_42.plan(MARKER, f"{name}-0")) == [[]]
    desk_42.vouched = False
    assert grounds(desk_42.plan(MARKER, f"{name}-0")) == [[RefusalReason.IDS_HIDDEN]]
