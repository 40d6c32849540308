"""The sign-in page, also for the admin; a locked user is told how long to wait and what to do.

A link made in "Users and access" leads to the page that sets a password.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm, SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.views import (
    INTERNAL_RESET_SESSION_TOKEN,
    LoginView,
    PasswordResetConfirmView,
    redirect_to_login,
)
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse, reverse_lazy
from django.utils import timezone

from dashboard.system import access, users
from dashboard.system.origin import client_address
from dashboard.system.sign_in import limits as sign_in_limits
from dashboard.system.sign_in.limits import Lock
from dashboard.web.rendering import forbidden_page
from fenceline.formatting import count_noun

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
    left = max(timedelta(seconds=1), lock.until - now)
    return _refused(request, _lock_text(lock, left, client_address(request)), int(left.total_seconds()))


def _lock_text(lock: Lock, left: timedelta, address: str) -> str:
    failures = count_noun(lock.failures, "wrong password")
    what = f"this address ({address})" if lock.of_address else "this name from this address"
    minutes = -(-int(left.total_seconds()) // 60)
    how = f"--address {address}" if lock.of_address and address else "NAME"
    return (
        f"Sign-in is locked for {what} after {failures}. Try again in {minutes} min, "
        f"at {lock.until:%H:%M:%S} UTC, or have it unlocked on the server: manage.py unlock_sign_in {how}"
    )


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
