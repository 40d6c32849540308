"""Proves on a real broker that page, API and Django admin each make a plan of what was asked, alike."""

import json
import random
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client

from dashboard.models import Action, Cluster, PartitionRecord, PinRecord, Token, Transaction
from dashboard.system.tokens import token_digest
from fenceline.facts import TransactionState
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.producers import open_in
from tests.web import factories

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


@pytest.fixture
def root(client: Client, prod: Cluster) -> Client:
    factories.tail_collectors(prod)
    factories.partition_collectors(prod)
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def stuck(kafka_42: Broker) -> Iterator[str]:
    """A transactional id whose producer wrote and stopped without ending its transaction."""
    name, topic = f"acting-{random.getrandbits(40):x}", f"acting-{random.getrandbits(40):x}"
    create_topics(kafka_42.bootstrap, topic, partitions=1)
    producer = open_in(kafka_42.bootstrap, name, topic, 0)
    yield name
    producer.abandon()


def choose(client: Client, model: type[Model], action: str, *rows: Model) -> Action:
    """Select rows in Django's admin and run an action on them; return the plan that it opens."""
    said = {"action": action, "_selected_action": [row.pk for row in rows]}
    answer = client.post(f"/admin/dashboard/{model.__name__.lower()}/", said)
    newest = Action.objects.order_by("-pk")[0]
    assert (answer.status_code, answer["Location"]) == (303, f"/actions/{newest.pk}")
    return newest


def test_page_and_api_plan_the_same(root: Client, stuck: str) -> None:
    asked = {"cluster": "prod", "act": "fence"}
    answer = root.post("/actions/plan", asked | {"subject": stuck})
    by_page = Action.objects.get()
    assert (answer.status_code, answer["Location"]) == (303, f"/actions/{by_page.pk}")
    shown = root.get(answer["Location"])
    assert f"Fence {stuck}" in shown.content.decode()
    Token.objects.create(name="ci", role="operator", digest=token_digest("let me in"))
    answer = Client(enforce_csrf_checks=True).post(
        "/api/v1/actions/plan",
        json.dumps(asked | {"subjects": [stuck]}),
        content_type="application/json",
        headers={"Authorization": "Bearer let me in"},
    )
    assert answer.status_code == 201, answer.content
    told = answer.json()
    (subject,) = told["subjects"]
    assert (told["confirm"], told["planned_by"], told["planned_via"]) == (stuck, "token ci", "api")
    assert subject["name"] == stuck
    # It has just written: whoever did that may live.
    assert [each["ground"] for each in subject["refusals"]] == ["healthy"]
    assert told["executable"] is False
    seen = [row.plan["subjects"][0]["seen"] for row in Action.objects.order_by("pk")]
    assert seen[0] == seen[1]


def test_an_admin_forces_a_refused_plan_and_the_page_shows_it(root: Client, stuck: str) -> None:
    asked = {"cluster": "prod", "act": "fence", "subject": stuck, "force": "1"}
    where = root.post("/actions/plan", asked)["Location"]
    shown = root.get(where).content.decode()
    assert "Forced, although:" in shown
    assert 'id="confirm"' in shown
    assert f'data-types="{stuck}"' in shown


def test_selected_ids_make_one_plan_to_fence(root: Client, prod: Cluster) -> None:
    rows = [factories.transaction(prod, f"never-seen-{n}") for n in range(3)]
    factories.transaction(prod, "never-seen-9")
    action = choose(root, Transaction, "fence_producers", *rows)
    assert (action.act, action.planned_by, action.planned_via) == ("fence", "root", "admin")
    assert sorted(action.subjects.split("\n")) == [f"transaction:never-seen-{n}" for n in range(3)]


def test_selected_ids_make_a_plan_to_end_their_open_transactions(root: Client, prod: Cluster) -> None:
    rows = [
        factories.transaction(prod, "never-open"),
        factories.transaction(prod, "never-over", TransactionState.COMPLETE_COMMIT, producer_id=9),
    ]
    action = choose(root, Transaction, "abort_of_ids", *rows)
    assert (action.act, action.subjects) == ("fence", "transaction:never-open")


def test_selected_blockers_get_a_marker_if_hanging_and_a_fence_if_owned(root: Client, prod: Cluster) -> None:
    hanging = factories.lso_blocker(prod, "never-made", 0, "hanging", ground="not_its_partition")
    late = [factories.lso_blocker(prod, "never-made", n, "late", ground="past_timeout") for n in (1, 2)]
    factories.transaction(
        prod, "payments-7", age_ms=200_000, partitions={"never-made": [1, 2]}, producer_id=4017
    )
    action = choose(root, PinRecord, "abort_of_pins", hanging)
    assert (action.act, action.subjects) == ("abort_marker", "partition:never-made-0")
    action = choose(root, PinRecord, "abort_of_pins", *late)
    assert (action.act, action.subjects) == ("fence", "transaction:payments-7")


def test_selected_partitions_make_a_plan_for_their_open_transactions(root: Client, prod: Cluster) -> None:
    factories.lso_blocker(prod, "never-made", 0, "hanging", ground="no_such_producer", transactional_id="")
    factories.partition(prod, "never-made", 1)
    action = choose(root, PartitionRecord, "abort_in", *PartitionRecord.objects.all())
    assert (action.act, action.subjects) == ("abort_marker", "partition:never-made-0")
