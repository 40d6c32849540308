"""Proves the sign-in at OpenID Connect providers: who gets in with which role, until when; and that a wrong
answer signs nobody in, says why in one line, and leaves an audit row."""

import html
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from joserfc.jwk import RSAKey

from dashboard.config import Config
from dashboard.config.identity import IdentityProvider
from dashboard.models import AuditEntry, ExternalIdentity
from dashboard.system import access, users
from dashboard.system.sign_in.limits import MOST_ROWS
from tests.cases import cases
from tests.openid_provider import CLIENT, SECRET, OpenIdProvider
from tests.web import factories
from tests.web.factories import audit_entry

pytestmark = pytest.mark.django_db
BACK = "/sign-in/corp/callback"


@pytest.fixture
def corp(settings: Any) -> Iterator[OpenIdProvider]:
    with OpenIdProvider() as provider:
        settings.FENCELINE = Config(identity_providers=[configured(provider)])
        yield provider


def configured(provider: OpenIdProvider, **other: Any) -> IdentityProvider:
    roles = (("staff", "viewer"), ("sre", "operator"), ("leads", "admin"))
    usual = {"name": "corp", "label": "Example Corp", "roles": roles}
    return IdentityProvider(
        issuer=provider.issuer, client_id=CLIENT, client_secret=SECRET, **{**usual, **other}
    )


def begin(client: Client, provider: OpenIdProvider, name: str = "corp", wanted: str = "") -> str:
    """Return the address that the provider sends the browser back to."""
    answer = client.get(f"/sign-in/{name}", {"next": wanted} if wanted else {})
    assert answer.status_code == 302, answer.content.decode()
    back = urlsplit(provider.authorize(answer["Location"]))
    return f"{back.path}?{back.query}"


def sign_in(provider: OpenIdProvider, wanted: str = "") -> tuple[Client, Any]:
    client = Client()
    return client, client.get(begin(client, provider, wanted=wanted))


def is_in(client: Client) -> bool:
    return client.get("/system").status_code == 200


def refused(answer: Any) -> str:
    """Return the one line of a refusal, which an audit row has, too."""
    assert answer.status_code == 403
    said = answer.content.decode().split("data-locked>")[1].split("</p>")[0]
    (row,) = AuditEntry.objects.filter(event=AuditEntry.Event.SIGN_IN_FAILED)
    assert row.changes["provider"] == [None, "corp"]
    assert row.address == "127.0.0.1"
    assert "\n" not in said.strip()
    return str(row.changes["reason"][1])


def test_a_user_of_a_group_comes_in_with_its_role_and_goes_where_wanted(corp: OpenIdProvider) -> None:
    assert "Example Corp" in Client().get("/login/").content.decode()
    client, answer = sign_in(corp, "/transactions?state=all")
    assert answer["Location"] == "/transactions?state=all"
    assert is_in(client)
    user = User.objects.get(username="ada")
    assert (users.role_of(user), users.state_of(user)) == ("operator", "external")
    assert ExternalIdentity.objects.get(user=user).subject == "u-1"
    assert 7.9 * 3_600 < client.session.get_expiry_age() <= 8 * 3_600
    signed_in = AuditEntry.objects.get(event=AuditEntry.Event.SIGN_IN_SUCCEEDED)
    assert signed_in.subject_name == "ada"


def test_the_role_follows_the_groups_at_each_sign_in(corp: OpenIdProvider) -> None:
    for groups, role in ((["leads", "staff"], "admin"), ("staff", "viewer"), (["sre", "x"], "operator")):
        corp.claims["groups"] = groups
        client, _ = sign_in(corp)
        assert is_in(client)
        assert users.role_of(User.objects.get()) == role
    corp.claims["groups"] = ["cooks"]
    client, answer = sign_in(corp)
    assert "leads, sre, staff" in refused(answer)
    assert not is_in(client)


@cases((["sre"], []), (["sre", "team-a"], ["prod"]), (["sre", "all"], ["prod", "staging"]))
def test_groups_name_the_clusters(
    corp: OpenIdProvider, settings: Any, groups: list[str], seen: list[str]
) -> None:
    rules = (("team-a", ("prod",)), ("all", ("*",)))
    settings.FENCELINE = Config(identity_providers=[configured(corp, clusters=rules)])
    for name in ("prod", "staging"):
        factories.cluster(name)
    corp.claims["groups"] = groups
    client, _ = sign_in(corp)
    assert [item["cluster"] for item in client.get("/api/v1/clusters").json()["items"]] == seen
    assert client.get("/channels").status_code == (200 if "all" in groups else 403)


@cases(
    (("*", "prod=admin"), (), ["*", "prod=admin"]),
    (("prod=viewer",), ("prod",), ["prod"]),
    (("prod=viewer",), ("prod=admin", "eu=viewer"), ["eu=viewer", "prod=admin"]),
    (("*",), ("*",), None),
)
def test_the_highest_role_of_the_groups_counts_on_each_cluster(
    corp: OpenIdProvider, settings: Any, sre: Any, on_call: Any, kept: list[str] | None
) -> None:
    rules = (("sre", sre), ("on-call", on_call))
    settings.FENCELINE = Config(identity_providers=[configured(corp, clusters=rules)])
    corp.claims["groups"] = ["sre", "on-call"]
    sign_in(corp)
    assert access.grants_of(User.objects.select_related("cluster_limit").get()) == kept


def test_a_subject_stays_the_same_user_under_another_name(corp: OpenIdProvider) -> None:
    sign_in(corp)
    corp.claims["preferred_username"] = "ada.l"
    client, _ = sign_in(corp)
    assert is_in(client)
    assert User.objects.get().username == "ada"


def test_another_issuer_under_the_same_name_knows_other_people(corp: OpenIdProvider, settings: Any) -> None:
    sign_in(corp)
    ExternalIdentity.objects.update(issuer="")
    assert is_in(sign_in(corp)[0])
    assert ExternalIdentity.objects.get().issuer == corp.issuer
    with OpenIdProvider() as other:
        settings.FENCELINE = Config(identity_providers=[configured(other)])
        assert "A user ada exists here who is not of Example Corp" in refused(sign_in(other)[1])


def test_sessions_of_a_removed_provider_end(corp: OpenIdProvider, settings: Any) -> None:
    client, local = sign_in(corp)[0], Client()
    local.force_login(User.objects.create_superuser("root"))
    settings.FENCELINE = Config()
    assert (is_in(client), is_in(local)) == (False, True)


def test_groups_of_the_userinfo_endpoint_count(corp: OpenIdProvider) -> None:
    corp.told_later = ("groups",)
    client, _ = sign_in(corp)
    assert is_in(client)


@pytest.mark.parametrize("name", ["ada", "ADA"])
def test_nobody_becomes_a_local_user(corp: OpenIdProvider, name: str) -> None:
    local = User.objects.create_superuser(name, password="a password of a local user")
    client, answer = sign_in(corp)
    assert "is not of Example Corp" in refused(answer)
    assert not is_in(client)
    assert local.check_password("a password of a local user")
    assert not ExternalIdentity.objects.exists()


def test_a_disabled_user_stays_out(corp: OpenIdProvider) -> None:
    sign_in(corp)
    User.objects.update(is_active=False)
    client, answer = sign_in(corp)
    assert "ada is disabled here" in refused(answer)
    assert not is_in(client)


def wrong_key(provider: OpenIdProvider) -> None:
    provider.signs_with = RSAKey.generate_key(2048, {"kid": "one"})


def secret_as_key(provider: OpenIdProvider) -> None:
    provider.algorithm = "HS256"


def claim(**wrong: Any) -> Callable[[OpenIdProvider], None]:
    return lambda provider: provider.wrong.update(wrong)


def describe(**described: Any) -> Callable[[OpenIdProvider], None]:
    return lambda provider: provider.described.update(described)


def tell(**claims: Any) -> Callable[[OpenIdProvider], None]:
    return lambda provider: provider.claims.update(claims)


@cases(
    (wrong_key, "signature"),
    (secret_as_key, "algorithm"),
    (claim(aud="another-client"), "aud"),
    (claim(aud=["another-client"], azp=CLIENT), "aud"),
    (claim(iss="https://evil.example"), "iss"),
    (claim(nonce="of-an-earlier-sign-in"), "nonce"),
    (claim(nonce=None), "nonce"),
    (claim(exp=1_000_000_000), "expired"),
    (claim(exp=None), "exp"),
    (claim(sub=None), "sub"),
    (claim(preferred_username=None), "username_claim"),
    (claim(preferred_username="a b\x1b[31m<script>"), "cannot be a user"),
    (claim(preferred_username="x" * 400), "cannot be a user"),
    (claim(preferred_username=7), "username_claim"),
    (claim(groups={"sre": 1}), "No group"),
    (claim(groups=5), "No group"),
    (claim(groups=True), "No group"),
    (claim(sub=""), "no usable sub"),
    (claim(sub="x" * 256), "no usable sub"),
    (claim(sub="a\0b"), "no usable sub"),
    (claim(preferred_username="a\0b"), "cannot be a user"),
    (describe(id_token_signing_alg_values_supported=5), "Example Corp was not accepted"),
    (describe(jwks={"keys": 5}), "Example Corp was not accepted"),
    (describe(issuer="https://evil.example"), "issuer"),
    (describe(token_endpoint="http://127.0.0.1:1/token"), "does not answer"),
    (describe(jwks_uri="http://127.0.0.1:1/keys"), "does not answer"),
    (tell(groups=None), "No group"),
)
def test_a_wrong_answer_signs_nobody_in(
    corp: OpenIdProvider, spoil: Callable[[OpenIdProvider], None], why: str
) -> None:
    spoil(corp)
    client, answer = sign_in(corp)
    assert why in refused(answer)
    assert not is_in(client)
    assert not User.objects.exists()


@cases(
    {"authorization_endpoint": 5},
    {"authorization_endpoint": "javascript:alert(1)"},
    {"authorization_endpoint": f"https://id.example/{'x' * 20_000}"},
    {"scope": 5},
)
def test_a_wrong_description_sends_nobody_there(corp: OpenIdProvider, described: dict[str, Any]) -> None:
    corp.described.update(described)
    assert "Example Corp was not accepted" in refused(Client().get("/sign-in/corp"))


def test_subjects_that_differ_in_the_end_alone_are_two_persons(corp: OpenIdProvider) -> None:
    for name in ("ada", "eve"):
        corp.claims.update(sub=f"{'s' * 250}-{name}", preferred_username=name)
        client, _ = sign_in(corp)
        assert User.objects.get(pk=client.session["_auth_user_id"]).username == name


def test_a_name_in_other_letters_is_the_same_name(corp: OpenIdProvider) -> None:
    User.objects.create_user("ada")
    corp.claims["preferred_username"] = "\uff21\uff24\uff21"
    _, answer = sign_in(corp)
    assert "A user ADA exists here" in refused(answer)


def test_a_session_ends_whatever_is_done_in_it(corp: OpenIdProvider) -> None:
    client, _ = sign_in(corp)
    ends = Session.objects.get().expire_date
    with patch("django.utils.timezone.now", return_value=ends - timedelta(hours=1)):
        client.get("/sign-in/corp")
    assert abs(Session.objects.get().expire_date - ends) < timedelta(seconds=2)


def test_what_strangers_begin_stays_small_and_ends_soon(corp: OpenIdProvider) -> None:
    client = Client()
    for _ in range(12):
        back = begin(client, corp, wanted=f"/{'x' * 40_000}")
    assert len(json.dumps(dict(client.session.items()))) < 10_000
    assert client.session.get_expiry_age() <= 3_600
    assert client.get(back)["Location"] == "/"
    assert is_in(client)
    assert client.session.get_expiry_age() > 3_600
    User.objects.create_user("root", password="a password of root")
    begin(local := Client(), corp)
    local.post("/login/", {"username": "root", "password": "a password of root"})
    assert local.session.get_expiry_age() > 24 * 3_600


def test_strangers_write_no_lines_of_the_log_and_hide_no_guess(
    corp: OpenIdProvider, caplog: pytest.LogCaptureFixture
) -> None:
    state = parse_qs(urlsplit(begin(client := Client(), corp)).query)["state"][0]
    client.get(BACK, {"error": "x", "error_description": "no\n2026 INFO root has signed in", "state": state})
    assert all("\n" not in record.getMessage() for record in caplog.records)
    AuditEntry.objects.all().delete()
    for number in range(MOST_ROWS + 5):
        audit_entry(
            AuditEntry.Event.SIGN_IN_FAILED, changes={"reason": [None, f"{number}"]}, address="127.0.0.1"
        )
        Client().get(BACK, {"error": str(number), "state": "x"})
    assert AuditEntry.objects.filter(event=AuditEntry.Event.SIGN_IN_FAILED).count() <= MOST_ROWS + 6
    User.objects.create_user("root", password="a password of root")
    Client().post("/login/", {"username": "root", "password": "a guess"})
    assert AuditEntry.objects.filter(event=AuditEntry.Event.SIGN_IN_FAILED, subject_name="root").exists()


def test_a_clock_that_is_a_little_off_is_no_refusal(corp: OpenIdProvider, settings: Any) -> None:
    corp.wrong.update(exp=int(time.time()) - 30)
    client, _ = sign_in(corp)
    assert is_in(client)


def test_a_state_counts_once_and_in_its_own_browser(corp: OpenIdProvider) -> None:
    client = Client()
    back = begin(client, corp)
    assert "another browser" in refused(Client().get(back))
    AuditEntry.objects.all().delete()
    client.get(back)
    assert is_in(client)
    assert "used before" in refused(client.get(back))


def test_a_refusal_by_the_provider_is_told(corp: OpenIdProvider) -> None:
    client = Client()
    state = parse_qs(urlsplit(begin(client, corp)).query)["state"][0]
    words = {"error": "access_denied", "error_description": "you said\nno", "state": state}
    assert "you said no" in refused(client.get(BACK, words))
    assert Client().get("/sign-in/nobody").status_code == 404
    assert Client().post("/sign-in/corp").status_code == 405


def test_two_providers_are_not_mixed_up(corp: OpenIdProvider, settings: Any) -> None:
    with OpenIdProvider() as other:
        both = [configured(corp), configured(other, name="other", label="Other")]
        settings.FENCELINE = Config(identity_providers=both)
        client = Client()
        back = begin(client, corp)
        assert client.get(back.replace("/corp/", "/other/")).status_code == 403
        assert client.get(f"{begin(client, corp)}&iss={other.issuer}").status_code == 403
        assert not is_in(client)
        assert client.get(f"{begin(client, corp)}&iss={corp.issuer}").status_code == 302
        # The same subject of another provider is another person.
        stranger = Client()
        assert stranger.get(begin(stranger, other, "other")).status_code == 403
        assert ExternalIdentity.objects.count() == 1


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_nobody_is_sent_elsewhere_after_it(corp: OpenIdProvider, wanted: str) -> None:
    _, answer = sign_in(corp, wanted)
    assert answer["Location"] == "/"


def test_a_provider_that_does_not_answer_is_told(corp: OpenIdProvider) -> None:
    corp.__exit__()
    answer = Client().get("/sign-in/corp")
    assert "does not answer" in refused(answer)


def test_a_sign_out_ends_both_sessions(corp: OpenIdProvider) -> None:
    client, _ = sign_in(corp)
    answer = client.post("/logout/")
    there = html.unescape(answer.content.decode().split("0; url=")[1].split('"')[0])
    asked = parse_qs(urlsplit(there).query)
    assert there.startswith(f"{corp.issuer}/end?")
    assert asked["post_logout_redirect_uri"] == ["http://testserver/login/"]
    assert asked["id_token_hint"][0].count(".") == 2
    assert not is_in(client)
    assert client.get("/logout/").status_code == 405


def test_a_provider_without_sign_out_ends_ours_alone(corp: OpenIdProvider) -> None:
    corp.described["end_session_endpoint"] = None
    client, _ = sign_in(corp)
    assert client.post("/logout/")["Location"] == "/login/"
    assert not is_in(client)


def test_an_admin_changes_neither_role_nor_password_of_an_external_user(corp: OpenIdProvider) -> None:
    sign_in(corp)
    ada, root = User.objects.get(), User.objects.create_superuser("root", password="a password of root")
    client = Client()
    client.force_login(root)
    for what in ("role", "link"):
        page = client.post(f"/access/{ada.pk}/{what}", {"role": "admin"}, follow=True)
        assert "signs in at corp" in page.content.decode()
    assert users.role_of(ada) == "operator"
    assert 'data-state="external"' in client.get("/access").content.decode()
    client.post(f"/access/{ada.pk}/disable")
    assert not User.objects.get(pk=ada.pk).is_active
