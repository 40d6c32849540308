"""Proves that Django's admin names every model in plain words, with a plural that is English."""

import re

import pytest
from django.apps import apps
from django.contrib import admin
from django.db.models import Model
from django.test import Client
from django.urls import reverse

MODELS = sorted(apps.get_app_config("dashboard").get_models(), key=lambda model: model.__name__)


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


@pytest.mark.django_db
def test_every_list_of_the_admin_has_a_plain_heading(root: Client) -> None:
    index = root.get(reverse("admin:index")).content.decode()
    for model in (model for model in MODELS if admin.site.is_registered(model)):
        heading = str(model._meta.verbose_name_plural)
        url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        assert re.search(rf'href="{url}"[^>]*>\s*{heading}\s*<', index, re.IGNORECASE), heading
    assert not re.search(r"Batchs|Deliverys|Querys|Recoverys", index)
