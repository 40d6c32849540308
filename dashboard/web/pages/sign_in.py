"""The sign-in page, also for the admin; a locked sign-in is told for how long and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from dashboard.system import sign_in_limits
from dashboard.system.client_address import client_address
from dashboard.system.sign_in_limits import Lock
from fenceline.formatting import count_noun

_BUSY_S = 5


class SignIn(LoginView):
    """Sign in with name and password, one at a time."""

    template_name = "sign_in/login.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Check one password at a time; answer 429 where too many wait."""
        try:
            with sign_in_limits.password_turn(sign_in_limits.axes_address(request)):
                return super().post(request, *args, **kwargs)
        except sign_in_limits.SignInBusy:
            words = f"Too many sign-ins at once: try again in {_BUSY_S} s. Nothing was counted."
            return _refused(request, words, _BUSY_S)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add whether a signed-in user asked for the admin and may not open it."""
        context = super().get_context_data(**kwargs)
        asked_admin = context["next"].startswith(reverse("admin:index"))
        return context | {"not_allowed": asked_admin and self.request.user.is_authenticated}


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the sign-in page: the admin checks no password by itself."""
    return redirect_to_login(request.GET.get("next") or reverse("admin:index"))


def locked_out(request: HttpRequest, response: HttpResponse, credentials: Mapping[str, Any]) -> HttpResponse:
    """Answer a sign-in that axes has refused, in place of `response`."""
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
    shown = {"form": AuthenticationForm(), "next": request.POST.get("next", ""), "refusal": words}
    response = render(request, "sign_in/login.html", shown, status=429)
    response["Retry-After"] = str(retry_after_s)
    response["Cache-Control"] = "no-store"
    return response
