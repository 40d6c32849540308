"""Proves the whole way: what is stuck is found by its right name, with who is blocked and what was lost, and
notified; it is ended from the browser, and notified as resolved.

A real broker, a real stack, a real browser, and a real receiver that checks each signature with the reference
library of Standard Webhooks. What Kafka's own reader of committed records reads decides what was unblocked.
"""

import random
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from fenceline.facts import TopicPartition
from sandbox.kafka import Broker
from sandbox.scenes import hanging, scenes
from sandbox.scenes.scene_context import Stage, make_producer
from tests.brokers import create_topics
from tests.chromium import ARGUMENTS, executable
from tests.deployment import PASSWORD, Stack
from tests.kafka.group_commits import commit_offsets, write_records
from tests.kafka.producers import LibrdkafkaProducer
from tests.kafka.stray_records import identity_of, verification_disabled, write_stray_records
from tests.receivers import Receiver
from tests.seeds import SEED
from tests.spark.sink.queries import read
from tests.stack.room.conftest import CLUSTER, new_broker, new_stack
from tests.stack.room.watched_pages import WatchedPages
from tests.waiting import wait_for
from transaction_admin.api import Marker
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

#: Without those of engines, and without one that only takes long.
SCENES = ("zombie", "timeout", "abandoned", "hanging", "fence")
_HANGS = TopicPartition(hanging.TOPIC, hanging.PARTITION)
#: What two of them leave blocked.
_LEFT = frozenset({"payments-0", str(_HANGS)})
_DEADLINE_S = 120


def play_scenes(pages: WatchedPages, broker: Broker, dice: random.Random) -> None:
    """Play all of them, and end what they left once pages have shown its incidents; return when these are
    closed."""
    assert broker.process
    stage = Stage(broker.bootstrap, {broker.node_id: broker.process.pid})
    for scene in dice.sample(SCENES, len(SCENES)):
        scenes.play(scene, stage, lambda line: None)
    wait_for(lambda: pages.blocked() >= _LEFT, "both partitions are blocked", _DEADLINE_S)
    wait_for(lambda: pages.held() >= _LEFT, "both are in findings", _DEADLINE_S)
    pages.wait_until_shown(2)
    make_producer(broker.bootstrap, "demo-abandoned")
    _end_hanging(broker)
    wait_for(lambda: not _LEFT & pages.held(), "both findings are closed", _DEADLINE_S)


def _end_hanging(broker: Broker) -> None:
    properties = {"bootstrap.servers": broker.bootstrap}
    with closing(TransactionAdmin(properties)) as admin, closing(ClusterReads(properties)) as reads:
        producers = reads.describe_producers([_HANGS])[_HANGS]
        assert isinstance(producers, tuple), producers
        for producer in producers:
            if producer.start_offset is not None:
                marker = Marker(_HANGS, producer.producer_id, producer.producer_epoch, 0)
                assert admin.write_abort_marker(marker, leader=broker.node_id).code == 0


pytestmark = [pytest.mark.kafka, pytest.mark.browser]

#: Five times the minute that the whole way may take.
DEADLINE_S = 300


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(stack: Stack, browser: Browser) -> Iterator[Page]:
    """A signed-in operator's."""
    page = browser.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{stack.url}/login/")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", PASSWORD)
    page.press("input[name=password]", "Enter")
    page.wait_for_url(f"{stack.url}/")
    yield page
    page.close()


class ControlRoom:
    """What the tests share: a receiver that a channel of the stack tells everything."""

    def __init__(self, stack: Stack, page: Page, receiver: Receiver) -> None:
        self.stack, self.page, self.receiver = stack, page, receiver
        self.name = f"room-{uuid.uuid4().hex[:8]}"
        self._secret = self._add_channel()

    def _add_channel(self) -> str:
        """Add the receiver as a channel, as a person does; return the secret, which is shown once."""
        page = self.page
        page.goto(f"{self.stack.url}/channels/new")
        page.fill("#name", self.name)
        page.check("input[name=kind][value=webhook]")
        page.fill("#url", self.receiver.url)
        page.fill("#matchers", f'subject=~".*{self.name}.*"')
        page.click("button:has-text('Add channel')")
        return page.locator("#the-secret").inner_text().strip()

    def notified_message(self, status: str, rule: str) -> dict[str, Any] | None:
        """Return the newest message in which an alert of a rule has a status; signatures must be right."""
        for request in reversed(self.receiver.received):
            message = request.verified(self._secret)
            for alert in message["alerts"]:
                if (alert["status"], alert["labels"]["alertname"]) == (status, rule):
                    return dict(message)
        return None

    def act(self, button: str, send: str, confirm: str) -> None:
        """Plan on the open page, type what is to be typed, and send."""
        page = self.page
        page.click(f"button:has-text('{button}')")
        expect(page.locator("#confirm")).to_be_visible()
        sends = page.locator("#confirm-send")
        expect(sends).to_have_text(send)
        page.fill("#confirm-reason", "a test of the whole way")
        page.fill("#confirm-typed", confirm[:-1])
        expect(sends).to_be_disabled()
        page.fill("#confirm-typed", confirm)
        sends.click()
        expect(page.locator(".now-true b").first).to_contain_text("Done")

    def items(self, noun: str, **where: str) -> list[dict[str, Any]]:
        """Return the items of a list of the API."""
        query = "&".join(f"{key}={quote(value)}" for key, value in where.items())
        return list(self.stack.api(f"{noun}?{query}")["items"])

    def item(self, noun: str, **where: str) -> dict[str, Any] | None:
        """Return the first item of a list of the API, None while there is none."""
        return next(iter(self.items(noun, **where)), None)

    def open_incident(self) -> None:
        """Go from the home page to the incident about what has the room's name."""
        self.page.goto(f"{self.stack.url}/")
        entry = self.page.locator("[data-incident]", has_text=self.name).first
        expect(entry).to_be_visible()
        entry.locator("a[data-row]").first.click()


@pytest.fixture
def control_room(stack: Stack, page: Page) -> Iterator[ControlRoom]:
    with Receiver() as receiver:
        yield ControlRoom(stack, page, receiver)


@pytest.fixture
def watched(stack: Stack, broker: Broker) -> Iterator[WatchedPages]:
    """The pages of the cluster, read each second while the sandbox's scenes are played beside the test."""
    with WatchedPages(stack, CLUSTER) as pages, ThreadPoolExecutor(1) as pool:
        scenes = pool.submit(play_scenes, pages, broker, random.Random(SEED))
        yield pages
        scenes.result()
    pages.check()


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_pages_agree_while_scenes_are_played_and_show_them_later(
    late: Broker, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # On a stack of its own: what repeats in each of them would be more incidents than have cards.
    with new_broker(tmp_path / "broker") as broker, new_stack(tmp_path, broker, late) as stack:
        with WatchedPages(stack, CLUSTER) as pages:
            play_scenes(pages, broker, random.Random(SEED + number))
        figures = pages.check()
    with capsys.disabled():
        print(f"\nFENCELINE_SEED={SEED}, run {number}: {figures}")


def test_an_abandoned_transaction_is_fenced_and_notified_as_resolved(
    broker: Broker, control_room: ControlRoom, watched: WatchedPages
) -> None:
    topic, group = f"{control_room.name}-orders", f"{control_room.name}-billing"
    create_topics(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, 5, partitions=1)
    producer = LibrdkafkaProducer(broker.bootstrap, control_room.name, {"transaction.timeout.ms": "600000"})
    producer.init()
    producer.begin()
    producer.send(topic, 0, "never committed")
    producer.flush()
    write_records(broker.bootstrap, topic, 7, partitions=1)
    commit_offsets(broker.bootstrap, group, topic, p0=5)
    wait_for(
        lambda: control_room.notified_message("firing", "open_too_long"),
        "the webhook that it is stuck",
        DEADLINE_S,
    )
    assert len(read(broker.bootstrap, topic)) == 5
    wait_for(
        lambda: (control_room.item("groups", q=group) or {}).get("blocked"), "the blocked group", DEADLINE_S
    )
    detail = control_room.stack.api(f"transactions/{CLUSTER}/{control_room.name}")
    assert (detail["verdict"], [each["group"] for each in detail["waiting"]]) == ("open", [group])
    control_room.open_incident()
    control_room.act("Fence producer", "Fence producer", control_room.name)
    followed = control_room.page.locator("section[aria-labelledby=followed]")
    expect(followed).to_contain_text(f"LSO of {topic}-0 moved 5 → 14")
    expect(followed).to_contain_text("Recovery of")
    assert len(read(broker.bootstrap, topic)) == 12
    wait_for(
        lambda: control_room.notified_message("resolved", "open_too_long"),
        "the webhook that it is over",
        DEADLINE_S,
    )
    recovery = wait_for(lambda: recovery_with_losses(control_room), "the recovery", DEADLINE_S)
    assert recovery["cause"] == "admin_fence"
    (lost,) = recovery["lost"]
    assert (lost["topic"], lost["partition"], lost["first_offset"], lost["sure"]) == (topic, 0, 5, True)
    assert [each["group"] for each in recovery["waited"]] == [group]
    producer.abandon()


def recovery_with_losses(control_room: ControlRoom) -> dict[str, Any] | None:
    """Return the recovery of the room's transaction once all that was aborted is known."""
    return next(
        (each for each in control_room.items("recoveries", q=control_room.name) if each["lost_complete"]),
        None,
    )


@pytest.mark.matrix
def test_a_hanging_transaction_is_aborted_by_a_marker_and_notified_as_resolved(
    broker: Broker, control_room: ControlRoom
) -> None:
    topic = f"{control_room.name}-lost"
    create_topics(broker.bootstrap, topic, partitions=1)
    identity = identity_of(broker, control_room.name)
    with verification_disabled(broker):
        write_stray_records(broker, control_room.name, identity, (topic, 0), records=3)
    write_records(broker.bootstrap, topic, 7, partitions=1)
    wait_for(
        lambda: control_room.notified_message("firing", "hanging"), "the webhook that it hangs", DEADLINE_S
    )
    assert read(broker.bootstrap, topic) == []
    partition = control_room.item("partitions", q=topic) or {}
    assert (partition["verdict"], partition["held"], partition["leader"]) == ("hanging", 10, 1)
    assert [each["transactional_id"] for each in partition["transactions"]] == [control_room.name]
    others = {"coordinator_overdue", "open_too_long"}
    assert not [
        each
        for each in control_room.items("findings")
        if each["rule"] in others and control_room.name in each["subject"]
    ]
    control_room.open_incident()
    control_room.act("Abort hanging transaction", "Write abort marker", control_room.name)
    followed = control_room.page.locator("section[aria-labelledby=followed]")
    expect(followed).to_contain_text(f"LSO of {topic}-0 moved 0 → 11")
    assert len(read(broker.bootstrap, topic)) == 7
    wait_for(
        lambda: control_room.notified_message("resolved", "hanging"),
        "the webhook that it is over",
        DEADLINE_S,
    )
