"""Shared by the endpoints that write: permissions, matchers, and errors about invalid fields."""

from typing import Annotated

from django.http import HttpRequest
from ninja.errors import HttpError
from pydantic import BeforeValidator, Field

from dashboard.alerts import validation
from dashboard.api.known_names import Body
from dashboard.api.problems import RefusedRequest
from dashboard.system import access
from dashboard.system.access import Actor
from fenceline.alerts import matchers

#: The most characters of a text that is parsed.
LONGEST_TEXT = 50_000
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]


class MatcherIO(Body):
    """A condition on a label, as in Alertmanager; `operator` is one of = != =~ !~."""

    label: str = Field(max_length=100)
    operator: str = Field("=", max_length=2)
    value: str = Field(max_length=10_000)


#: Text such as `team="Payments", cluster=~"prod.*"`, or a list of matchers.
Matchers = Text | Annotated[list[MatcherIO], Field(max_length=100)]


def _read_kept(kept: list[list[str]]) -> list[MatcherIO]:
    return [MatcherIO(label=label, operator=sign, value=value) for label, sign, value in kept]


#: Matchers in the form stored in rows.
KeptMatchers = Annotated[list[MatcherIO], BeforeValidator(_read_kept)]


def require_permission(request: HttpRequest, permission: str, cluster: str = "") -> Actor:
    """Return the caller; raises a 403 unless they have the permission, on `cluster` if given."""
    actor = access.actor_of(request, "api")
    if refused := access.permission_refusal(actor, permission, cluster):
        raise HttpError(403, refused)
    return actor


def invalid_fields(error: validation.Unfit) -> RefusedRequest:
    """Return a 422 whose `errors` names each invalid field and the reason."""
    errors = [{"in": f"body.{name}", "message": words} for name, words in error.fields.items()]
    return RefusedRequest(422, str(error), errors=errors)


def read_matchers(asked: Matchers) -> list[matchers.Matcher]:
    """Return the matchers in a request; raises ValueError with a readable message."""
    if isinstance(asked, str):
        return matchers.parse_matchers(asked)
    if len(asked) > matchers.MOST_MATCHERS:
        raise ValueError(f"These are {len(asked)} matchers; at most {matchers.MOST_MATCHERS} are taken.")
    return [matchers.make_matcher(given.label, given.operator, given.value) for given in asked]
