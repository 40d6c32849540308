"""Answer every error as an RFC 9457 problem, `application/problem+json`, and describe them in OpenAPI.

Names in a request are checked: an unknown parameter or field is rejected, with the nearest known name.
"""

import difflib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from http import HTTPStatus
from typing import Any, ClassVar, ParamSpec, TypeVar

from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError
from ninja.errors import ValidationError as InvalidRequest
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation
from ninja.params.models import ParamModel
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from dashboard.actions.execute import ExecutionRefused
from dashboard.actions.planning import NotPlanned
from dashboard.alerts.deliver import CannotSend
from dashboard.alerts.validation import Unfit
from dashboard.history.record_lens import CannotLook
from dashboard.incidents.operators import IncidentClosed
from dashboard.runtime import visibility
from dashboard.runtime.database_errors import explain_error, log_line
from dashboard.runtime.problems import problem_response

log = logging.getLogger(__name__)

_SIGN_IN = "Sign in, or send 'Authorization: Bearer TOKEN' (manage.py create_token)."
#: Pydantic's name for the type of "", an alternative of several parameters; errors about it do not help.
_NOTHING = "literal['']"
#: Seconds to wait after a temporary error.
RETRY_AFTER_S = 5
#: The most unknown names in one response, and the most letters of a name.
_MOST, _LONGEST = 20, 60
_AS_OF_NOW = (
    "this is known as of now, without history; "
    "ask /api/v1/events or /api/v1/transitions for what happened in a range"
)
P = ParamSpec("P")
R = TypeVar("R")


class Problem(Schema):
    """An error by RFC 9457. `detail` describes what happened and what to do."""

    type: str
    title: str
    status: int
    detail: str


@csrf_exempt
def unknown_path(request: HttpRequest) -> HttpResponse:
    """Answer 404 for an unknown path, whatever the method."""
    return _not_found(request, "")


class RefusedRequest(HttpError):
    """An error whose problem has further members, such as what to request instead."""

    def __init__(self, status: int, detail: str, **members: Any) -> None:
        super().__init__(status, detail)
        self.members = members


def install_handlers(api: NinjaAPI) -> None:
    api.add_exception_handler(AuthenticationError, _unauthenticated)
    api.add_exception_handler(InvalidRequest, _invalid)
    api.add_exception_handler(Http404, _not_found)
    api.add_exception_handler(HttpError, _refused)
    api.add_exception_handler(DatabaseError, database_problem)
    api.add_exception_handler(Unfit, _unfit)
    for refusal in (NotPlanned, ExecutionRefused, CannotSend, CannotLook, IncidentClosed):
        api.add_exception_handler(refusal, _not_done)


def _unauthenticated(request: HttpRequest, error: Any) -> HttpResponse:
    why = error.message if error.message != AuthenticationError().message else _SIGN_IN
    response = problem_response(401, why)
    response["WWW-Authenticate"] = "Bearer"
    return response


def _invalid(request: HttpRequest, error: Any) -> HttpResponse:
    errors = [
        {"in": _place(item["loc"]), "message": item["msg"].removeprefix("Value error, ")}
        for item in error.errors
        if item["loc"][-1] != _NOTHING
    ]
    return problem_response(
        422, "; ".join(f"{mistake['in']}: {mistake['message']}" for mistake in errors), errors=errors
    )


def _place(loc: Sequence[str | int]) -> str:
    """Return a location such as `query.severity`, without our argument's name and Pydantic's type names."""
    return ".".join(map(str, ("query", loc[2]) if tuple(loc[:2]) == ("query", "wanted") else loc))


def _not_found(request: HttpRequest, error: Any) -> HttpResponse:
    return problem_response(404, str(error) or f"There is nothing at {request.path}.")


def _refused(request: HttpRequest, error: Any) -> HttpResponse:
    members = getattr(error, "members", {})
    response = problem_response(error.status_code, str(error), **members)
    if wait_s := members.get("retry_after_s"):
        response["Retry-After"] = str(wait_s)
    return response


def _unfit(request: HttpRequest, error: Any) -> HttpResponse:
    """Return a 422 whose `errors` names each invalid field and the reason."""
    errors = [{"in": f"body.{name}", "message": words} for name, words in error.fields.items()]
    return problem_response(422, str(error), errors=errors)


def _not_done(request: HttpRequest, error: Any) -> HttpResponse:
    """Return why an operation was not done, with the status of the reason: 409 without one."""
    return problem_response(getattr(error, "status", 409), str(error))


def database_problem(request: HttpRequest, error: Any) -> HttpResponse:
    """Log a database error, and answer with its explanation."""
    log.error("%s: %s", request.path, log_line(error))
    explanation = explain_error(error)
    response = problem_response(explanation.status, explanation.text)
    if explanation.is_passing:
        response["Retry-After"] = str(RETRY_AFTER_S)
    return response


_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
#: Further error statuses by operation id; `_statuses` derives the other ones.
_MORE: Mapping[str, tuple[int, ...]] = {
    "dashboard_api_actions_make_plan": (404, 409, 503),
    "dashboard_api_actions_execute_plan": (409, 410),
    "dashboard_api_channels_rotate_secret": (409,),
    "dashboard_api_channels_send_test": (409,),
    "dashboard_api_deliveries_send_again": (409,),
    "dashboard_api_incidents_acknowledge_incident": (409,),
}


class DescribedAPI(NinjaAPI):
    """An API whose OpenAPI description includes the errors."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return `dashboard_api_NOUN_FUNCTION`, which generated clients use; a router's tag is its noun."""
        return "_".join(["dashboard_api", *(operation.tags or ()), operation.view_func.__name__])

    def get_openapi_schema(self, **_: Any) -> OpenAPISchema:
        """Return the description; the API's path has no parameters, so it never varies."""
        return self._schema

    @cached_property
    def _schema(self) -> OpenAPISchema:
        """The description, derived once per process because that takes half a second."""
        schema = super().get_openapi_schema()
        known = schema["components"]["schemas"]
        # Models of query strings: OpenAPI lists their fields as parameters and never refers to the models.
        for name in [name for name in known if name.endswith("Filters")]:
            del known[name]
        schema["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        for operations in schema["paths"].values():
            for operation in operations.values():
                for status in sorted(set(_statuses(operation))):
                    words = {"description": HTTPStatus(status).phrase, "content": _PROBLEM}
                    operation["responses"].setdefault(status, words)
        return schema


def _statuses(operation: Mapping[str, Any]) -> Iterator[int]:
    yield from (400, 401, 403, 422, 429, 500, 503)
    yield from _MORE.get(operation["operationId"], ())
    asked = operation["parameters"]
    if any(parameter["in"] == "path" or parameter["name"] == "cluster" for parameter in asked):
        yield 404
    if "requestBody" in operation:
        yield 413


class Body(BaseModel):
    """The body of a request, or a part of one."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, sent: object) -> object:
        if isinstance(sent, Mapping):
            refuse_unknown_names(sent, cls.model_fields)
        return sent


class _Request(ParamModel):
    """Checks a request beside the operation's own models, so that one response lists every error."""

    __ninja_param_source__ = "query"  # type: ignore[assignment]
    __ninja_flatten_map_reverse__: ClassVar[Mapping[Any, Any]] = {}
    #: None if the operation reads the query string itself.
    parameters: ClassVar[Collection[str] | None]
    has_body: ClassVar[bool]

    @classmethod
    def get_request_data(cls, request: HttpRequest, api: NinjaAPI, path_params: dict[str, Any]) -> None:
        if not cls.has_body and request.body.strip() not in (b"", b"{}", b"null"):
            raise HttpError(422, "body: this request takes none, and nothing was done; send it without.")
        if cls.parameters is not None:
            refuse_unknown_names(request.GET, cls.parameters)
            refuse_repeated(request)


def refuse_unknown_names(sent: Collection[str], known: Collection[str]) -> None:
    """Raise Pydantic's ValidationError for unknown names."""
    _raise((name, _unknown(name, known)) for name in sent if name not in known)


def refuse_repeated(request: HttpRequest) -> None:
    """Raise Pydantic's ValidationError for repeated parameters."""
    counts = ((name, len(values)) for name, values in request.GET.lists())
    _raise((name, f"it is given {count} times; give it once") for name, count in counts if count > 1)


def know_request(run: Callable[P, R]) -> Callable[P, R]:
    """Make an operation reject parameters, and a body, that it does not declare; a ninja view decorator."""
    operation: Operation = run.__self__  # type: ignore[attr-defined]
    sources = {model.__ninja_param_source__: model for model in operation.models}
    query = getattr(sources.get("query"), "__ninja_flatten_map__", {})
    names = None if operation.signature.has_kwargs else tuple(query)
    model = type("Request", (_Request,), {"parameters": names, "has_body": "body" in sources})
    operation.models = [model, *operation.models]
    return run


def know_cluster(view: Callable[..., R]) -> Callable[..., R]:
    """Make an operation answer 404 if its `cluster` parameter names a cluster that is not configured."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **values: Any) -> R:
        asked = request.GET.get("cluster", "")
        if asked and asked not in {row.name for row in visibility.configured_clusters()}:
            raise Http404(f"No cluster '{asked[:_LONGEST]}' is configured.")
        return view(request, *args, **values)

    return checked


def _unknown(name: str, known: Collection[str]) -> str:
    if name in ("from", "to"):
        return _AS_OF_NOW
    near = difflib.get_close_matches(name[:_LONGEST], known, n=1) or [
        prefix for prefix in known if name.startswith(prefix)
    ]
    hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known) or 'none'}"
    return f"this name is not known here; {hint}"


def _raise(errors: Iterator[tuple[str, str]]) -> None:
    lines = [
        InitErrorDetails(
            type=PydanticCustomError("unknown_name", "{words}", {"words": words}),
            loc=(name[:_LONGEST],),
            input=None,
        )
        for name, words in errors
    ][:_MOST]
    if lines:
        raise ValidationError.from_exception_data("request", lines)
