"""Proves that nothing hidden is ever called quiet: known transactions behind random combinations of topics,
rights, requests, leaders and coordinators that are taken away, as time goes on.
"""

import random
from collections.abc import Iterator

import pytest

from collectors.kafka import internal_topics
from dashboard.runtime.collector_names import GROUPS, OFFSETS, PARTITIONS, RECONCILE, TAIL
from fenceline.findings import Sense
from sandbox.kafka import Broker
from tests.kafka.blinded_cluster import BlindedCluster, Blindness, random_restrictions
from tests.kafka.proxy.restrictions import Restrictions
from tests.kafka.proxy.server import KafkaProxy
from tests.seeds import SEED
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

#: Combinations that follow each other on one cluster, and the lives of a cluster: cold, or seen once.
_STEPS = 5
_GATE, _MATRIX = range(3), range(3, 40)


@pytest.fixture
def blinded(kafka_42: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlindedCluster]:
    # Tails give up soon.
    monkeypatch.setattr(internal_topics, "_TIMEOUT_S", 0.7)
    with KafkaProxy(kafka_42.port) as proxy:
        made = BlindedCluster(kafka_42.bootstrap, proxy)
        yield made
        made.close()


@pytest.mark.parametrize(
    "life", [*_GATE, *(pytest.param(number, marks=pytest.mark.matrix) for number in _MATRIX)]
)
def test_what_cannot_be_seen_is_unknown_and_never_quiet(blinded: BlindedCluster, life: int) -> None:
    dice = random.Random(f"{SEED}-{life}")
    if life % 2:
        see_all(blinded)
    for step in range(_STEPS):
        restrictions = random_restrictions(dice, blinded.topic)
        print(f"life {life} step {step}: {restrictions}")
        take_away(blinded, restrictions, dice)
    blinded.restrict(Restrictions())
    see_all(blinded)


def take_away(blinded: BlindedCluster, restrictions: Restrictions, dice: random.Random) -> None:
    """Take things away, let time pass, and hold what the product reports against what can be seen."""
    blinded.restrict(restrictions)
    if dice.random() < 0.4:
        print("restarted")
        blinded.restart()
    if dice.random() < 0.5:
        blinded.live(dice)
    print("open:", blinded.opened)
    blind = Blindness(restrictions)
    blinded.poll()
    wait_for(lambda: tails_report_what_they_cannot_read(blinded, blind), "gaps of the tails", 10)
    assert_nothing_is_called_quiet(blinded, blind)


def see_all(blinded: BlindedCluster) -> None:
    """With nothing taken away everything is seen and right again."""
    wanted = {("open_too_long", f"transaction:{name}") for name in blinded.opened}
    wanted |= {("lso_pinned", f"partition:{blinded.topic}-{number}") for number in blinded.opened.values()}
    wanted |= {("group_stalled", f"group:{blinded.group}")}

    def is_seen() -> object:
        blinded.poll()
        found = blinded.findings()
        gaps = set[str]().union(*map(blinded.gaps, (TAIL, OFFSETS, PARTITIONS, GROUPS, RECONCILE)))
        return (set(found), [row.rule for row in found.values() if not row.complete], gaps)

    wait_for(is_seen, f"exactly {wanted} is found", 30, until=lambda found: found == (wanted, [], set()))
    assert blinded.open_rows() == set(blinded.opened)
    assert blinded.collector(RECONCILE).detail["corrected"] == 0
    blinded.was_read = blinded.knew_group = blinded.knew_topic = True


def tails_report_what_they_cannot_read(blinded: BlindedCluster, blind: Blindness) -> bool:
    """Poll again; return whether the tails that cannot read have a gap, and no other. A fetch takes a moment.

    What is hidden from the start, without the topic, may be silent: nobody tells that it is there.
    """
    blinded.poll()
    reported = {source for source in (TAIL, OFFSETS) if "cluster" in blinded.gaps(source)}
    may_be_silent = {TAIL} if is_silent_on_ids(blinded, blind) else set()
    may_be_silent |= {OFFSETS} if blind.is_silent_on_groups and not blinded.knew_group else set()
    blind_ones = {
        source for source, is_blind in ((TAIL, blind.log), (OFFSETS, blind.offsets_log)) if is_blind
    }
    return reported - may_be_silent == blind_ones - may_be_silent


def is_silent_on_ids(blinded: BlindedCluster, blind: Blindness) -> bool:
    return not blinded.was_read and blind.is_silent_on_ids(blinded.topic, blinded.opened.values())


def assert_nothing_is_called_quiet(blinded: BlindedCluster, blind: Blindness) -> None:
    """Hold what the product says against what can be seen at all."""
    lists = blinded.collector(RECONCILE)
    if blind.lists and not blind.restrictions.ids_denied:
        assert lists.error or lists.detail["unseen"]
    assert lists.detail.get("corrected", 0) == 0
    assert not blinded.hanging()
    assert_transactions_are_unknown(blinded, blind)
    assert_partitions_are_unknown(blinded, blind)
    group = f"group:{blinded.group}"
    is_known = blinded.knew_group or not blind.restrictions.groups_denied
    assert not (blind.group(blinded.group) and is_known and blinded.covers(Sense.GROUPS, group))
    blinded.knew_group = blinded.knew_group or not blind.group(blinded.group)
    assert not blinded.closed_early(), "a finding ended while its cause lasts"


def assert_transactions_are_unknown(blinded: BlindedCluster, blind: Blindness) -> None:
    if not blind.log:
        blinded.was_read = True
    found = blinded.findings()
    for name, number in blinded.opened.items():
        is_seen = blinded.covers(Sense.TRANSACTIONS, f"transaction:{name}")
        is_found = name in blinded.open_rows() and ("open_too_long", f"transaction:{name}") in found
        if blind.restrictions.ids_denied and not blinded.was_read:
            # Nobody tells of an id that is hidden from the start: where its partition is seen, that does.
            where = f"{blinded.topic}-{number}"
            is_found = blind.partition(blinded.topic, number) or ("lso_pinned", f"partition:{where}") in found
        assert not is_seen or is_found, f"{name} is called quiet"
        is_blind = blind.log and (blind.lists or blinded.was_read) and not blind.restrictions.ids_denied
        assert not (is_blind and is_seen), f"{name} is not unknown"
    assert not (blind.log and blinded.covers(Sense.HISTORY)) or is_silent_on_ids(blinded, blind)


def assert_partitions_are_unknown(blinded: BlindedCluster, blind: Blindness) -> None:
    is_denied = blinded.topic in blind.restrictions.undescribed
    blinded.knew_topic = blinded.knew_topic or not is_denied
    if is_denied and blind.log and not blinded.knew_topic:
        return  # Neither brokers nor the log name it.
    for number in blinded.opened.values():
        where = f"partition:{blinded.topic}-{number}"
        if blind.partition(blinded.topic, number):
            assert not blinded.covers(Sense.PARTITIONS, where), f"{where} is not unknown"
            assert blinded.gaps(PARTITIONS), where
        else:
            found = blinded.findings()
            assert ("lso_pinned", where) in found or not blinded.covers(Sense.PARTITIONS, where)
