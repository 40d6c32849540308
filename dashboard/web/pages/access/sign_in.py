"""The sign-in page, also for the admin; a locked user is told how long to wait and what to do. A link made in
"Users and access" leads to the page that sets a password.

Sign in at an identity provider by OpenID Connect, and sign out at both ends. Authlib makes the request (code
flow, PKCE, state, nonce) and checks the answer and its ID token.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.base_client.errors import MismatchingStateError
from authlib.integrations.django_client import OAuth
from django.conf import settings
from django.contrib.auth import login, logout
from django.contrib.auth.forms import AuthenticationForm, SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.views import (
    INTERNAL_RESET_SESSION_TOKEN,
    LoginView,
    PasswordResetConfirmView,
    redirect_to_login,
)
from django.core.exceptions import SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse, reverse_lazy
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe
from joserfc.errors import JoseError

from dashboard.config.identity import IdentityProvider
from dashboard.system import access, users
from dashboard.system.access import AccessRefused
from dashboard.system.origin import client_address
from dashboard.system.sign_in import external_identities
from dashboard.system.sign_in import limits as sign_in_limits
from dashboard.system.sign_in.limits import record_refusal
from dashboard.web.rendering import forbidden_page
from fenceline.formatting import count_noun

log = logging.getLogger(__name__)

_BUSY_S = 5


class SignIn(LoginView):
    """Sign in with name and password, one at a time."""

    template_name = "sign_in/login.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Check one password at a time; answer 429 if too many requests wait."""
        try:
            with sign_in_limits.password_turn(sign_in_limits.axes_address(request)):
                return super().post(request, *args, **kwargs)
        except sign_in_limits.SignInBusy:
            words = f"Too many sign-ins at once: try again in {_BUSY_S} s. Nothing was counted."
            return _refused(request, words, _BUSY_S)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Sign in with the default expiry: a begun single sign-on has shortened the browser's session."""
        response = super().form_valid(form)
        self.request.session.set_expiry(None)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add whether a signed-in user asked for the admin and may not open it."""
        context = super().get_context_data(**kwargs)
        asked_admin = context["next"].startswith(reverse("admin:index"))
        refused = asked_admin and self.request.user.is_authenticated
        return context | {"not_allowed": refused, "providers": settings.FENCELINE.identity_providers}


class SetPassword(PasswordResetConfirmView):
    """Set a password once by a link; answer 404 to a used, expired or wrong link, or a disabled user's."""

    template_name = "sign_in/set_password.html"
    success_url = reverse_lazy("login")
    http_method_names = ["get", "head", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Refuse other methods, and with READ_ONLY all."""
        if (request.method or "").lower() not in self.http_method_names:
            return self.http_method_not_allowed(request)
        if settings.READ_ONLY:
            return forbidden_page(request, access.READ_ONLY)
        return super().dispatch(request, *args, **kwargs)

    def get_user(self, uidb64: str) -> User | None:
        """Return the user of a link, None for a disabled user."""
        user = super().get_user(uidb64)
        return user if user is not None and user.is_active else None

    def form_valid(self, form: "SetPasswordForm[User]") -> HttpResponse:
        """Set the password; of two simultaneous uses of one link, one is refused."""
        token, password = (
            self.request.session.pop(INTERNAL_RESET_SESSION_TOKEN),
            form.cleaned_data["new_password1"],
        )
        may = partial(self.token_generator.check_token, token=token)
        self.validlink = users.set_password(form.user.pk, password, still_may=may)
        if self.validlink:
            return HttpResponseRedirect(self.get_success_url())
        return self.render_to_response(self.get_context_data())

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        """Answer 404 for a link that is not valid, 422 for a refused password."""
        status = 404 if not self.validlink else 422 if context["form"].errors else 200
        return super().render_to_response(context, status=status, **kwargs)


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the sign-in page, because the admin must not check passwords itself."""
    return redirect_to_login(request.GET.get("next") or reverse("admin:index"))


def locked_out(request: HttpRequest, response: HttpResponse, credentials: Mapping[str, Any]) -> HttpResponse:
    """Return the answer for a sign-in that axes has refused, in place of `response`."""
    lock, now = sign_in_limits.lock_of(request, str((credentials or {}).get("username", ""))), timezone.now()
    left_s = int(max(timedelta(seconds=1), lock.until - now).total_seconds())
    failures, address = count_noun(lock.failures, "wrong password"), client_address(request)
    what = f"this address ({address})" if lock.of_address else "this name from this address"
    how = f"--address {address}" if lock.of_address and address else "NAME"
    words = (
        f"Sign-in is locked for {what} after {failures}. Try again in {-(-left_s // 60)} min, "
        f"at {lock.until:%H:%M:%S} UTC, or have it unlocked on the server: manage.py unlock_sign_in {how}"
    )
    return _refused(request, words, left_s)


def _refused(request: HttpRequest, words: str, retry_after_s: int) -> HttpResponse:
    response = refused_page(request, words, request.POST.get("next", ""), status=429)
    response["Retry-After"] = str(retry_after_s)
    response["Cache-Control"] = "no-store"
    return response


def refused_page(request: HttpRequest, words: str, wanted: str, *, status: int) -> HttpResponse:
    """Return the sign-in page with the reason of a refusal; it leads to `wanted` after the next sign-in."""
    shown = {
        "form": AuthenticationForm(),
        "next": wanted,
        "refusal": words,
        "providers": settings.FENCELINE.identity_providers,
    }
    return render(request, "sign_in/login.html", shown, status=status)


_WITHIN_S = 10
#: Signatures that only a provider can make: not `none`, and not those by the secret that we know, too.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: Session keys: the address after the sign-in, the session's provider, and the ID token for the sign-out
#: there.
_NEXT, _PROVIDER, _ID_TOKEN = "sign_in_next", "sign_in_provider", "sign_in_id_token"
#: The user and groups that a proxy named.
_TOLD = "sign_in_told"
#: Authlib's keys in a session, the maximum concurrent sign-ins of one browser, and their lifetime of an hour.
_STATE, _MOST_BEGUN, _BEGUN_S = "_state_", 5, 3_600
_LONGEST_NEXT, _LONGEST_REASON = 4_000, 300
#: Errors between a provider and us, each with its own text.
_FAILURES = (
    AuthlibBaseError, JoseError, requests.RequestException,
    # Errors of a malformed description or answer, such as a number in place of a list.
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, SuspiciousOperation,
)  # fmt: skip


@require_safe
def begin(request: HttpRequest, name: str) -> HttpResponse:
    """Redirect the browser to a provider."""
    provider = _provider(name)
    _bound_session(request)
    back = request.build_absolute_uri(reverse("sign-in-callback", args=[name]))
    try:
        return _client(provider).authorize_redirect(request, back)  # type: ignore[no-any-return]
    except _FAILURES as error:
        return _refused_sign_in(request, provider, error)


@require_safe
def callback(request: HttpRequest, name: str) -> HttpResponse:
    """Handle a provider's answer: sign its user in, or show the reason of the refusal."""
    provider = _provider(name)
    try:
        token = _checked_token(request, provider)
        user = external_identities.admit(provider, token["userinfo"])
    except (*_FAILURES, AccessRefused) as error:
        return _refused_sign_in(request, provider, error)
    wanted = request.session.pop(_NEXT, "")
    _let_in(request, user, provider)
    request.session[_PROVIDER], request.session[_ID_TOKEN] = name, token["id_token"]
    allowed = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return HttpResponseRedirect(wanted if allowed else reverse("overview"))


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session, and if possible the provider's session."""
    name, proof = request.session.get(_PROVIDER, ""), request.session.get(_ID_TOKEN, "")
    logout(request)
    provider = next((known for known in settings.FENCELINE.identity_providers if known.name == name), None)
    there = _sign_out_url(request, provider, proof) if provider else ""
    if provider and there:
        # Our policy (form-action) forbids a form's answer to redirect elsewhere, so a page redirects.
        return render(request, "sign_in/signed_out.html", {"provider": provider, "there": there})
    return HttpResponseRedirect(reverse("login"))


def sign_in_by_proxy(request: HttpRequest) -> HttpResponse | None:
    """Sign in the user whom the configured proxy names; return the refusal for a user without access.

    A session continues while the proxy names the same user and groups. Programs use their own tokens.
    """
    proxy = settings.FENCELINE.sign_in_proxy
    peer = getattr(request, "scope", {}).get("state", {}).get("peer", "")
    if proxy is None or "Authorization" in request.headers or not proxy.sends_from(peer):
        return None
    of = proxy.provider
    name, groups = (request.headers.get(header, "") for header in (of.username_claim, of.groups_claim))
    told = [name, groups]
    if not name or (request.user.is_authenticated and request.session.get(_TOLD) == told):
        return None
    claims = {"sub": name, of.username_claim: name, of.groups_claim: list(map(str.strip, groups.split(",")))}
    try:
        user = external_identities.admit(of, claims)
    except AccessRefused as error:
        return _refused_sign_in(request, of, error)
    _let_in(request, user, of)
    request.session[_TOLD] = told
    return None


def _let_in(request: HttpRequest, user: User, provider: IdentityProvider) -> None:
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[-1])
    # A fixed instant: a number of hours would restart with each change of the session.
    request.session.set_expiry(timezone.now() + timedelta(hours=provider.session_h))


def _bound_session(request: HttpRequest) -> None:
    """Store the next address, and bound the session's size: anonymous requests write it."""
    session, wanted = request.session, request.GET.get("next", "")
    session[_NEXT] = wanted if len(wanted) <= _LONGEST_NEXT else ""
    begun = [key for key, _ in session.items() if key.startswith(_STATE)]
    for key in begun[: 1 - _MOST_BEGUN]:
        del session[key]
    if not request.user.is_authenticated:
        session.set_expiry(_BEGUN_S)


def _sign_out_url(request: HttpRequest, provider: IdentityProvider, proof: str) -> str:
    """Return the provider's address for ending its session (RP-initiated logout); "" if it has none."""
    client = _client(provider)
    try:
        if not client.load_server_metadata().get("end_session_endpoint"):
            return ""
        back = request.build_absolute_uri(reverse("login"))
        return str(client.create_logout_url(back, proof, client_id=provider.client_id)["url"])
    except _FAILURES as error:
        log.warning("%s cannot be asked to sign a user out: %s", provider.name, error)
        return ""


def _provider(name: str) -> IdentityProvider:
    for provider in settings.FENCELINE.identity_providers:
        if provider.name == name:
            return provider
    raise Http404(f"No identity provider is called {name} here.")


def _client(provider: IdentityProvider) -> Any:
    """Return a client that reads the provider's description and keys again: the keys may have changed."""
    return OAuth().register(
        provider.name,
        client_id=provider.client_id,
        client_secret=provider.client_secret,
        server_metadata_url=f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration",
        client_kwargs={
            "scope": provider.scope,
            "code_challenge_method": "S256",
            "default_timeout": _WITHIN_S,
        },
    )


def _checked_token(request: HttpRequest, provider: IdentityProvider) -> Mapping[str, Any]:
    """Return the tokens of an answer, with the claims as "userinfo"; raises one of _FAILURES."""
    client = _client(provider)
    if not client.framework.get_state_data(request.session, request.GET.get("state")):
        # This browser began no sign-in: do not ask the provider, and do not trust the answer's text.
        raise MismatchingStateError
    described = client.load_server_metadata()
    # An attacker may mix two providers up: RFC 9207, and OpenID Connect Discovery 4.3.
    for issuer in (described.get("issuer"), request.GET.get("iss", provider.issuer)):
        if issuer != provider.issuer:
            raise ValueError(f"the answer is of issuer {issuer!r}, not of {provider.issuer}")
    offered = described.get("id_token_signing_alg_values_supported") or ["RS256"]
    described["id_token_signing_alg_values_supported"] = [name for name in offered if name in _ALGORITHMS]
    options = {
        "iss": {"essential": True, "value": provider.issuer},
        "aud": {"essential": True, "value": provider.client_id},
    }
    token = client.authorize_access_token(request, claims_options=options, leeway=provider.leeway_s)
    if "userinfo" not in token:
        raise ValueError("it sent no ID token: is 'openid' in scope?")
    claims = token["userinfo"]
    if provider.groups_claim not in claims and described.get("userinfo_endpoint"):
        more = client.userinfo(token=token)
        if more.get("sub") != claims["sub"]:
            raise ValueError("its user information is of somebody else")
        token["userinfo"] = {**more, **claims}
    return token  # type: ignore[no-any-return]


def _refused_sign_in(request: HttpRequest, provider: IdentityProvider, error: Exception) -> HttpResponse:
    # The log and the page show foreign text as one line.
    printable = "".join(letter if letter.isprintable() else " " for letter in _explain(provider, error))
    words = " ".join(printable.split())[:_LONGEST_REASON]
    record_refusal(request, provider.name, words)
    return refused_page(request, words, request.session.pop(_NEXT, ""), status=403)


def _explain(provider: IdentityProvider, error: Exception) -> str:
    match error:
        case AccessRefused():
            return str(error)
        case MismatchingStateError():
            return "This sign-in was begun in another browser, or used before: begin again from this page."
        case requests.RequestException():
            why = type(error).__name__
            return f"{provider.label} does not answer ({why}): try again, or sign in with a local user."
    return f"{provider.label} was not accepted: {error}. Nobody was signed in."
