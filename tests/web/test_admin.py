"""Proves that Django's admin names every model in plain words, with a plural that is English, and what its
actions say where the selected rows make no plan; tests/kafka has the plans."""

import html
import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from dashboard import admin as admin_pages
from dashboard.models import Action, Cluster, PartitionRecord, PinRecord, Transaction
from dashboard.system import access
from tests.web import factories

pytestmark = pytest.mark.django_db
MODELS = sorted(apps.get_app_config("dashboard").get_models(), key=lambda model: model.__name__)


def choose(client: Client, model: type[Model], action: str, *rows: Model, **more: str) -> Any:
    said = {"action": action, "_selected_action": [row.pk for row in rows]} | more
    return client.post(f"/admin/dashboard/{model.__name__.lower()}/", said, follow=False)


def message(client: Client, answer: Any) -> str:
    """Return what the list says after an action that made no plan."""
    assert answer.status_code == 302, answer.status_code
    assert answer["Location"].startswith("/admin/")
    shown = html.unescape(client.get(answer["Location"]).content.decode())
    assert "Nothing was planned." in shown
    return shown


def test_nothing_to_end_says_so(root: Client, prod: Cluster) -> None:
    clear = factories.partition(prod, "payments", 1)
    unknown = factories.lso_blocker(
        prod, "payments", 4, "unknown", ground="may_be_hidden", transactional_id=""
    )
    said = "Nothing that is selected is open and can be ended from here."
    assert said in message(root, choose(root, PartitionRecord, "abort_in", clear))
    assert said in message(root, choose(root, PinRecord, "abort_of_pins", unknown))


def test_two_kinds_of_stuck_are_two_plans(root: Client, prod: Cluster) -> None:
    hanging = factories.lso_blocker(prod, "payments", 0, "hanging", ground="not_its_partition")
    late = factories.lso_blocker(prod, "payments", 1, "late", ground="past_timeout")
    factories.transaction(prod, "payments-7", age_ms=600_000, producer_id=4017)
    said = message(root, choose(root, PinRecord, "abort_of_pins", hanging, late))
    assert "1 of these hang and need an abort marker, 1 are owned by a coordinator" in said


def test_more_than_a_plan_has_room_for_is_refused(root: Client, prod: Cluster) -> None:
    rows = [factories.transaction(prod, f"payments-{n}") for n in range(51)]
    assert "at most 50 subjects" in message(root, choose(root, Transaction, "fence_producers", *rows))
    all_of_them = choose(root, Transaction, "fence_producers", rows[0], select_across="1")
    assert "at most 50 subjects" in message(root, all_of_them)
    assert not Action.objects.exists()


def test_two_clusters_are_refused(root: Client, prod: Cluster) -> None:
    rows = [factories.transaction(prod), factories.transaction(factories.cluster("staging"))]
    said = message(root, choose(root, Transaction, "fence_producers", *rows))
    assert "One plan is for one cluster, and these are of prod and staging" in said


def test_a_cluster_that_cannot_be_reached_is_told(root: Client, prod: Cluster) -> None:
    said = message(root, choose(root, Transaction, "fence_producers", factories.transaction(prod)))
    assert "No plan can be made for prod" in said


@pytest.mark.parametrize("read_only", [False, True])
def test_who_may_look_at_admin_may_not_act_by_that(
    client: Client, prod: Cluster, settings: Any, read_only: bool
) -> None:
    settings.READ_ONLY = read_only
    access.ensure_roles()
    user = User.objects.create_user("staff", is_staff=True)
    user.groups.set([Group.objects.get(name="admin" if read_only else "viewer")])
    user.user_permissions.set(Permission.objects.filter(codename="view_transaction"))
    client.force_login(user)
    said = message(client, choose(client, Transaction, "fence_producers", factories.transaction(prod)))
    assert ("READ_ONLY is set" if read_only else "needs the role operator") in said
    assert not Action.objects.exists()


def test_the_admin_s_own_actions_are_the_only_ones(root: Client, prod: Cluster) -> None:
    factories.transaction(prod)
    shown = root.get("/admin/dashboard/transaction/").content.decode()
    assert "Abort stuck transactions…" in shown
    assert "Fence producers…" in shown
    assert "delete_selected" not in shown


def test_what_signs_and_what_leases_is_not_shown(root: Client, prod: Cluster) -> None:
    action = factories.executed_action(lease_token="c0ffee" * 5)
    shown = root.get(f"/admin/dashboard/action/{action.pk}/change/").content.decode()
    assert "ticket 4411" in shown
    assert "c0ffee" not in shown


def test_every_function_is_an_action_of_some_list() -> None:
    names = {name for name, each in vars(admin_pages).items() if hasattr(each, "short_description")}
    assert names == {"fence_producers", "abort_of_ids", "abort_of_pins", "abort_in"}


def plural(words: str) -> str:
    """The plural of regular English nouns, by their last word; that of “series” is the same."""
    if words.endswith("series"):
        return words
    if re.search(r"[^aeiou]y$", words):
        return words[:-1] + "ies"
    return words + ("es" if re.search(r"(?:ch|sh|s|x)$", words) else "s")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_model_has_a_plain_name_and_plural(model: type[Model]) -> None:
    name = str(model._meta.verbose_name)
    assert "verbose_name" in model._meta.original_attrs, "Django's guess from the class name is no plain word"
    assert str(model._meta.verbose_name_plural) == plural(name)


def test_no_two_models_share_a_name() -> None:
    names = [str(model._meta.verbose_name) for model in MODELS]
    assert sorted(set(names)) == sorted(names)


def test_every_list_of_the_admin_has_a_plain_heading(root: Client) -> None:
    index = root.get(reverse("admin:index")).content.decode()
    for model in (model for model in MODELS if admin.site.is_registered(model)):
        heading = str(model._meta.verbose_name_plural)
        url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        assert re.search(rf'href="{url}"[^>]*>\s*{heading}\s*<', index, re.IGNORECASE), heading
    assert not re.search(r"Batchs|Deliverys|Querys|Recoverys", index)
