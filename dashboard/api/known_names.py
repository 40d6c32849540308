"""Check the names in a request: reject an unknown parameter or field, and suggest the nearest known name."""

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

from django.http import Http404, HttpRequest
from ninja import NinjaAPI
from ninja.errors import HttpError
from ninja.operation import Operation
from ninja.params.models import ParamModel
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from dashboard.runtime import visibility

#: The most unknown names in one response, and the most letters of a name.
_MOST, _LONGEST = 20, 60
_AS_OF_NOW = (
    "this is known as of now, without history; "
    "ask /api/v1/events or /api/v1/transitions for what happened in a range"
)
P = ParamSpec("P")
R = TypeVar("R")


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
