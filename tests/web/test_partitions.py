"""Proves that partitions are listed and told truly: what holds them, who waits, and what replicas say."""

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from kombu.exceptions import OperationalError

from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.incidents import store
from dashboard.labels.status import NEXT_STEPS
from dashboard.models import Cluster, Incident, PartitionRecord, PinRecord
from dashboard.web.pages import partitions as views
from fenceline.kafka.partitions import VerdictReason
from fenceline.limits import Limits
from fenceline.text import verdict_reason
from tests.cases import cases
from tests.web import factories
from tests.web.roles import give_role, page_html

pytestmark = pytest.mark.django_db
ONE = "/partitions/prod/payments/0"


def names(page: Client, query: str = "") -> list[str]:
    return re.findall(r"data-row><bdi>([^<]+)</bdi>", page_html(page, f"/partitions{query}"))


@pytest.fixture
def six(prod: Cluster) -> Cluster:
    factories.partition(prod, "clear", 10, high_watermark=48_212)
    factories.partition(prod, "clear", 9)
    factories.lso_blocker(prod, "open", age_ms=9_000)
    factories.lso_blocker(prod, "late", verdict="late", age_ms=5_000)
    factories.lso_blocker(prod, "hanging", verdict="hanging", age_ms=7_000)
    factories.partition(prod, "unseen", error="leader not available")
    factories.partition(prod, "__consumer_offsets", 17)
    return prod


@cases(
    # The worst first; what is not seen before what is clear; numbers as numbers.
    ("", ["hanging-0", "late-0", "open-0", "unseen-0", "clear-9", "clear-10"]),
    ("?sort=name", ["clear-9", "clear-10", "hanging-0", "late-0", "open-0", "unseen-0"]),
    ("?sort=age", ["open-0", "hanging-0", "late-0", "clear-9", "clear-10", "unseen-0"]),
    ("?sort=held&verdict=clear", ["clear-10", "clear-9", "unseen-0"]),
    ("?sort=held&dir=asc&verdict=clear", ["clear-9", "unseen-0", "clear-10"]),
    ("?verdict=pinned", ["hanging-0", "late-0", "open-0"]),
    ("?verdict=hanging", ["hanging-0"]),
    ("?q=LEA", ["clear-9", "clear-10"]),
    ("?q=clear-10", ["clear-10"]),
    ("?q=ear-9", ["clear-9"]),
    ("?q=%25", []),
    ("?internal=1&q=offsets", ["__consumer_offsets-17"]),
)
def test_the_address_decides_what_is_shown(page: Client, six: Cluster, query: str, shown: list[str]) -> None:
    assert names(page, query) == shown


def test_internal_topics_are_hidden_but_listed_among_the_blocked(page: Client, prod: Cluster) -> None:
    factories.lso_blocker(prod, "__consumer_offsets", 17)
    factories.partition(prod, "__transaction_state", 3)
    text = page_html(page, "/partitions")
    assert "show 2 internal" in text
    assert "__consumer_offsets-17" not in text
    assert "__consumer_offsets-17" in page_html(page, "/partitions?verdict=blocked")


def test_blocked_is_one_count_on_every_page(page: Client, prod: Cluster) -> None:
    """Stuck for more than ten seconds, or hanging; what is open for a few seconds is in flight, healthy."""
    old = factories.lso_blocker(prod, "payments", 0, age_ms=61_000, transactional_id="payments-7")
    factories.lso_blocker(prod, "payments", 1, age_ms=2_000, transactional_id="payments-8")
    factories.lso_blocker(prod, "audit", 0, age_ms=2_000, verdict="hanging", transactional_id="")
    reader = SnapshotReader("prod")
    at_ms, limits = factories.now_ms(), Limits()
    snapshot = reader.read(now_ms=at_ms, limits=limits)
    found = [
        factories.finding(prod, f"partition:{name}", rule=rule)
        for name, rule in (("payments-0", "lso_pinned"), ("audit-0", "hanging"))
    ]
    store.save_incidents(prod.pk, found, store.incident_facts(snapshot, now_ms=at_ms), now_ms=at_ms)
    home = page_html(page, "/")
    assert "2 partitions blocked" in home
    assert 'data-blocked="2"' in home
    assert sum(row.impact["partitions"] for row in Incident.objects.all()) == 2
    listed = page_html(page, "/partitions?verdict=blocked")
    assert re.findall(r'<tr id="p-', listed) == ['<tr id="p-'] * 2
    body = page.get("/api/v1/partitions?verdict=blocked").json()
    assert [(each["topic"], each["partition"]) for each in body["items"]] == [("audit", 0), ("payments", 0)]
    assert "BLOCKED" in page_html(page, f"/partitions/prod/payments/{old.partition}")
    assert "BLOCKED" not in page_html(page, "/partitions/prod/payments/1")


def test_a_row_names_what_holds_it(page: Client, prod: Cluster) -> None:
    pin = factories.lso_blocker(prod, "payments", transactional_id="payments-7")
    PinRecord.objects.create(
        cluster=prod, topic="payments", partition=0, producer_id=9, producer_epoch=0, start_offset=48_900,
        last_sequence=1, last_timestamp_ms=-1, first_seen_ms=pin.first_seen_ms, seen_ms=pin.seen_ms,
        verdict="unknown", ground="seen_once",
    )  # fmt: skip
    factories.lso_blocker(prod, "audit", transactional_id="", producer_id=9001)
    text = page_html(page, "/partitions")
    assert "/transactions/prod/payments-7" in text
    assert "+1" in text
    assert "producer 9001" in text
    assert "1,770" in text


@pytest.mark.parametrize("ground", VerdictReason)
def test_every_ground_is_put_into_words_with_a_next_step(
    page: Client, prod: Cluster, ground: VerdictReason
) -> None:
    factories.lso_blocker(prod, "payments", ground=ground.value)
    text = html.unescape(page_html(page, ONE))
    assert verdict_reason(ground)[1:] in text
    assert NEXT_STEPS[ground] in text


def test_zero_and_unknown_look_different(page: Client, prod: Cluster) -> None:
    factories.partition(prod, "zero", log_start=0, lso=0, high_watermark=0)
    PartitionRecord.objects.filter(pk=factories.partition(prod, "never").pk).update(
        log_start=None, lso=None, high_watermark=None, ends=""
    )
    zero, never = page_html(page, "/partitions?q=zero"), page_html(page, "/partitions?q=never")
    assert '<td class="col-lso number">0</td>' in zero
    assert '<td class="col-lso number">—</td>' in never


def test_who_waits_and_who_reads_past_are_told_apart(page: Client, prod: Cluster) -> None:
    pin = factories.lso_blocker(prod, "payments")
    factories.blocked_offset(factories.group(prod, "billing"), pin)
    factories.group_offset(factories.group(prod, "mirror"), offset=49_981, waiting="reads_past")
    factories.group_offset(factories.group(prod, "slow"), offset=12, waiting="not_yet")
    factories.group_offset(factories.group(prod, "rpw"), unstable=True, offset=None)
    factories.group_offset(factories.group(prod, "elsewhere"), "payments", 1)
    text = page_html(page, ONE)
    assert "1 group likely blocked" in text
    order = [text.index(f"<bdi>{name}</bdi>") for name in ("rpw", "billing", "mirror", "slow")]
    assert order == sorted(order)
    for words in ("commit pending", "likely blocked", "reads uncommitted", "not there yet"):
        assert words in text
    assert "elsewhere" not in text


def test_a_producer_may_claim_any_instant(page: Client, prod: Cluster) -> None:
    for number, claimed in enumerate((-1, 2**62)):
        factories.lso_blocker(prod, "payments", number, last_timestamp_ms=claimed)
        assert f"{claimed} ms is no instant" in page_html(page, f"/partitions/prod/payments/{number}")


class TestReplicas:
    """Every replica is asked on demand, through a collector; the dashboard speaks to no broker."""

    @pytest.fixture(autouse=True)
    def is_operator(self, user: User) -> None:
        give_role(user, "operator")

    def test_a_press_sends_the_task_and_shows_the_page(
        self, page: Client, prod: Cluster, sent: list[Any]
    ) -> None:
        factories.partition(prod)
        answer = page.post(f"{ONE}/replicas")
        assert answer.status_code == 303
        assert re.fullmatch(rf"{ONE}\?asked=\d+#replicas", answer["Location"])
        (((name, arguments), options),) = sent
        assert (name, arguments) == ("collectors.look_at_replicas", ("prod", "payments", 0))
        assert options["queue"] == "default"
        assert "Waiting for answers." in page_html(page, answer["Location"].partition("#")[0])

    @pytest.mark.parametrize(("role", "read_only"), [("viewer", False), ("operator", True)])
    def test_who_may_not_ask_sees_why(
        self,
        user: User,
        page: Client,
        prod: Cluster,
        sent: list[Any],
        settings: Any,
        role: str,
        read_only: bool,
    ) -> None:
        factories.partition(prod)
        give_role(user, role)
        settings.READ_ONLY = read_only
        assert re.search(r"<button[^>]* disabled>Query all replicas</button>", page_html(page, ONE))
        answer = page.post(f"{ONE}/replicas")
        assert answer.status_code == 403
        assert ("READ_ONLY" if read_only else "dashboard.ask_replicas") in answer.content.decode()
        assert not sent

    def test_answers_end_the_asking(self, page: Client, prod: Cluster) -> None:
        factories.partition(prod)
        asked = factories.now_ms() - 2_000
        producers = [factories.replica_producer(4017, 48_211, "payments-7"), factories.replica_producer(5000)]
        factories.replica(prod, "payments", 0, 1, producers)
        assert "Waiting for answers" in page_html(page, f"{ONE}?asked={asked}")
        factories.replica(prod, "payments", 0, 2, producers)
        factories.replica(prod, "payments", 0, 3, error="connection refused")
        text = page_html(page, f"{ONE}?asked={asked}")
        assert "Asking" not in text
        assert 'broker 3 · <span class="trouble">connection refused</span>' in text
        assert "none (idempotent only) or unknown" in text
        assert "The replicas differ" not in text

    def test_nobody_who_answers_is_said(self, page: Client, prod: Cluster) -> None:
        factories.partition(prod)
        assert "No answer for 15 s" in page_html(page, f"{ONE}?asked={factories.now_ms() - 60_000}")

    def test_replicas_that_differ_are_pointed_out(self, page: Client, prod: Cluster) -> None:
        factories.partition(prod)
        factories.replica(prod, "payments", 0, 1, [])
        factories.replica(prod, "payments", 0, 2, [factories.replica_producer(4017, 48_211)])
        assert "The replicas differ" in page_html(page, ONE)

    def test_redis_away_is_said(self, page: Client, prod: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OperationalError("connection refused")

        monkeypatch.setattr(views.app, "send_task", refuse)
        factories.partition(prod)
        answer = page.post(f"{ONE}/replicas")
        assert "Redis does not answer" in page_html(page, answer["Location"].partition("#")[0])

    @pytest.mark.parametrize("asked", ["x", "%C2%B2", "-1", "9" * 40, ""])
    def test_no_value_of_asked_breaks_the_page(self, page: Client, prod: Cluster, asked: str) -> None:
        factories.partition(prod)
        page_html(page, f"{ONE}?asked={asked}")
