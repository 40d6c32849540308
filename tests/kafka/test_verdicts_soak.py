"""Proves the verdicts on generated situations whose truth is known, with a printed seed: none is wrong.

With verification on and off, by librdkafka and Java; with timeouts, takeovers, and the leader restarted and
killed in between. Beside each stand Java's describeProducers and `find-hanging`, run with a timeout of 0, so
that every open transaction whose newest record is not dated ahead is its candidate.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.java_gateway import JavaGateway

from fenceline.kafka.partitions import PartitionVerdict, VerdictReason
from sandbox.kafka import Broker
from tests.brokers import PROPERTIES, create_topics
from tests.java.clients import JavaAdmin
from tests.java.tools import KafkaTool
from tests.kafka.collected_partitions import CollectedPartitions, describe_producers, find_hanging
from tests.kafka.random_transactions import LONG_MS
from tests.kafka.scenarios import UNVERIFIED, VERIFIED, PartitionScenario, Truth, hanging_dated_ahead
from tests.kafka.stray_records import verification_disabled
from tests.seeds import SEED
from tests.waiting import wait_for
from transaction_admin.api import AdminUnavailable

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.django_db]

SITUATIONS = 200
#: Their share with verification on: there nothing can hang.
ON = 80
TOPIC, ELSEWHERE = "situations", "elsewhere"
HANGING = PartitionVerdict.HANGING


@pytest.fixture(params=["4.2.0", "3.9.1"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """One of its own: it is restarted and killed."""
    with Broker(tmp_path / "kafka", version=request.param, properties=PROPERTIES) as running:
        yield running


def deal(
    kinds: Sequence[Callable[[PartitionScenario], None]], amount: int
) -> list[Callable[[PartitionScenario], None]]:
    """Return so many kinds in random order, each as often as any other."""
    dice = random.Random(f"{SEED} {amount}")
    dealt = [kinds[number % len(kinds)] for number in range(amount)]
    dice.shuffle(dealt)
    return dealt


def test_no_verdict_is_wrong_in_two_hundred_situations(
    broker: Broker, java: JavaGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topics(broker.bootstrap, TOPIC, partitions=SITUATIONS)
    create_topics(broker.bootstrap, ELSEWHERE)
    collected = CollectedPartitions(broker.bootstrap)
    with JavaAdmin(java, broker.bootstrap) as admin:

        def play(
            numbers: Sequence[int], kinds: Sequence[Callable[[PartitionScenario], None]]
        ) -> list[PartitionScenario]:
            made = [
                PartitionScenario(broker, java, admin, TOPIC, n, random.Random(f"{SEED} {n}"), ELSEWHERE)
                for n in numbers
            ]
            with ThreadPoolExecutor(8) as pool:
                return list(pool.map(PartitionScenario.play, made, deal(kinds, len(made))))

        played = play(range(ON), VERIFIED)
        restart(broker, collected, broker.stop)
        check(collected, played, later_ms=0)
        with verification_disabled(broker):
            played += play(range(ON, SITUATIONS), UNVERIFIED)
        check(collected, played, later_ms=0)
        restart(broker, collected, broker.kill)
        figures = check(collected, played, later_ms=0)
        compare_with_kafka_tools(KafkaTool(broker, java), admin, collected, played)
        late = check(collected, played, later_ms=LONG_MS + 60_000)
    collected.close()
    with capsys.disabled():
        kinds = Counter(each.kind for each in played)
        print(f"\nKafka {broker.version}: {len(played)} situations, FENCELINE_SEED={SEED}")
        print(f"verdicts {dict(figures)}, and past every timeout {dict(late)}")
        print(", ".join(f"{name} {n}" for name, n in sorted(kinds.items())))


def restart(broker: Broker, collected: CollectedPartitions, end: Callable[[], None]) -> None:
    end()
    with pytest.raises(AdminUnavailable):
        collected.poll()
    broker.start()
    broker.wait_ready()

    def is_available() -> bool:
        try:
            collected.poll()
        except AdminUnavailable:
            return False
        return not collected.gaps()

    wait_for(is_available, "all is seen again", 120)


def check(
    collected: CollectedPartitions, played: Sequence[PartitionScenario], *, later_ms: int
) -> Counter[str]:
    """Poll, and compare the verdicts with the truth; return how often each verdict was right.

    Markers may still be on their way: what is over is waited for. `later_ms` moves the local clock past
    timeouts.
    """
    collected.poll_repeatedly(later_ms=later_ms)
    wait_for(
        lambda: collected.poll(later_ms=later_ms) and not [
            each for each in played if len(collected.verdicts(*each.where)) != len(each.truth)
        ],
        "all markers are written", 60,
    )  # fmt: skip
    collected.poll_repeatedly(2, later_ms=later_ms)
    wrong = []
    figures: Counter[str] = Counter()
    for each in played:
        truth = [late(*pin) for pin in each.truth] if later_ms else each.truth
        said: Truth = collected.verdicts(*each.where)
        verdict = max((pin[1] for pin in truth), key=ORDER.index, default=PartitionVerdict.CLEAR)
        if said != truth or collected.verdict(*each.where) is not verdict:
            wrong.append(
                f"{each.name}, {each.kind}: {said}, {collected.verdict(*each.where)}; true is {truth}"
            )
        figures[verdict] += 1
    assert not wrong, f"FENCELINE_SEED={SEED}\n" + "\n".join(wrong)
    return figures


ORDER = (PartitionVerdict.CLEAR, PartitionVerdict.OPEN, PartitionVerdict.LATE, PartitionVerdict.HANGING)


def late(
    name: str, verdict: PartitionVerdict, ground: VerdictReason
) -> tuple[str, PartitionVerdict, VerdictReason]:
    """What is true of an open transaction once its timeout and the grace are over by the local clock."""
    return (
        (name, PartitionVerdict.LATE, VerdictReason.PAST_TIMEOUT)
        if verdict is PartitionVerdict.OPEN
        else (name, verdict, ground)
    )


def compare_with_kafka_tools(
    tool: KafkaTool, admin: JavaAdmin, collected: CollectedPartitions, played: Sequence[PartitionScenario]
) -> None:
    """Compare the verdicts with Kafka's own tools."""
    theirs = admin.describe_producers([each.where for each in played])
    for each in played:
        opened = {(producer_id, start) for producer_id, _, start in theirs[each.where] if start is not None}
        assert {(pin.producer_id, pin.start_offset) for pin in collected.blockers(*each.where)} == opened, (
            each.name
        )
    for each in random.Random(SEED).sample(played, 3):
        assert describe_producers(tool, *each.where) == theirs[each.where]
    found = {
        (each.partition, each.producer_id, each.start_offset)
        for each in find_hanging(tool)
        if each.topic == TOPIC
    }
    ours = {
        (each.number, pin.producer_id, pin.start_offset): each.kind
        for each in played
        for pin in collected.blockers(*each.where)
        if pin.verdict == HANGING
    }
    assert found <= ours.keys()
    # Weak point a, docs/design/kafka.md §1.1: an age by the producer's clock is below any limit where that is
    # ahead.
    assert {ours[each] for each in ours.keys() - found} == {hanging_dated_ahead.__name__}
