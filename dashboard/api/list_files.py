"""`/api/v1/exports`: export a whole list as one CSV or JSON file, page by page, with the list's filters."""

import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_type_hints

from asgiref.sync import sync_to_async
from django.http import Http404, HttpRequest, HttpResponseBase, StreamingHttpResponse
from ninja import Router, Schema
from ninja.errors import ValidationError
from pydantic import BaseModel
from pydantic import ValidationError as WrongFields

from dashboard.api.problems import refuse_repeated, refuse_unknown_names
from dashboard.runtime.csv_text import csv_text

#: Items in a page of an export: no list has a smaller maximum for `limit`.
_AT_ONCE = 500
#: zlib's value for a gzip header and the largest window.
_GZIP = 16 + zlib.MAX_WBITS


#: Successive pages of a list.
Pages = Iterator[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ExportedList:
    """A list of the API: its function, its parameters and its response."""

    read: Callable[[HttpRequest, Any], Mapping[str, object]]
    filters: type[BaseModel]
    answer: type[Schema]

    @property
    def columns(self) -> Sequence[str]:
        item = self.answer.model_fields["items"].annotation.__args__[0]  # type: ignore[union-attr]
        return list(item.model_fields)

    def pages(self, request: HttpRequest) -> Pages:
        """Yield the pages that a request's query string selects; raises ValidationError."""
        wanted = self._wanted(request)
        following: str | None = ""
        while following is not None:
            answered = self.read(request, wanted.model_copy(update={"cursor": following}))
            page = self.answer.model_validate(answered).model_dump(mode="json")
            yield page
            following = page["next"]

    def _wanted(self, request: HttpRequest) -> BaseModel:
        asked = {**request.GET.dict(), "limit": _AT_ONCE, "cursor": ""}
        fields = self.filters.model_fields.items()
        try:
            # Pages link here with the names of their own parameters, so the fields' names are accepted too.
            refuse_unknown_names(
                asked, {known for name, field in fields for known in (name, field.alias) if known}
            )
            refuse_repeated(request)
            return self.filters.model_validate(asked)
        except WrongFields as error:
            raise ValidationError(
                [{**mistake, "loc": ("query", *mistake["loc"])} for mistake in error.errors()]
            ) from None


def exported_list(of: Router) -> ExportedList | None:
    """Return the list at the root of a router; None if its function takes no cursor."""
    roots = of.path_operations.get("")
    if roots is None:
        return None
    operation = roots.operations[0]
    answer = operation.response_models[200].model_fields["response"].annotation
    for taken in get_type_hints(operation.view_func).values():
        if "cursor" in getattr(taken, "model_fields", ()):
            return ExportedList(operation.view_func, taken, answer)
    return None


def export_list(request: HttpRequest, of: ExportedList, noun: str, form: str) -> StreamingHttpResponse:
    """Return a list as a file; errors in the request are raised before the first byte is sent."""
    pages = of.pages(request)
    first = next(pages)
    write = {"csv": _csv_parts, "json": _json_parts}[form]
    kind = {"csv": "text/csv; charset=utf-8", "json": "application/json"}[form]
    parts: Iterator[bytes] = (part.encode() for part in write(of, first, pages))
    headers = {"Content-Disposition": f'attachment; filename="{noun}.{form}"', "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        parts, headers["Content-Encoding"] = _zipped(parts), "gzip"
    return StreamingHttpResponse(_one_by_one(parts), content_type=kind, headers=headers)


def _zipped(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield one gzip member: Django's middleware makes one per part, and browsers read only the first."""
    stream = zlib.compressobj(wbits=_GZIP)
    for part in parts:
        yield stream.compress(part) + stream.flush(zlib.Z_SYNC_FLUSH)
    yield stream.flush()


def _csv_parts(of: ExportedList, first: Mapping[str, Any], rest: Pages) -> Iterator[str]:
    columns = of.columns
    yield csv_text([columns])
    for page in chain([first], rest):
        yield csv_text([item[name] for name in columns] for item in page["items"])


def _json_parts(of: ExportedList, first: Mapping[str, Any], rest: Pages) -> Iterator[str]:
    about = {name: value for name, value in first.items() if name not in ("items", "next")}
    yield json.dumps(about)[:-1] + ', "items": ['
    comma = ""
    for page in chain([first], rest):
        yield comma + ",\n".join(map(json.dumps, page["items"]))
        comma = ",\n" if page["items"] or comma else ""
    yield "]}"


async def _one_by_one(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of a generator that queries the database; it reads a page once the last one is sent."""
    read = sync_to_async(lambda: next(parts, None))
    while (part := await read()) is not None:
        yield part


router = Router(tags=["exports"])

#: Lists by noun; `dashboard.api` adds every list with pages.
LISTS: dict[str, ExportedList] = {}


@router.get("/{noun}.{form}", summary="Download a whole list as CSV or JSON", response={200: None})
def download_list(
    request: HttpRequest, noun: str, form: Literal["csv", "json"], **_: object
) -> HttpResponseBase:
    """Return all items of the list `noun`, with the list's own parameters.

    CSV has a column for each field; cells with objects or lists contain JSON. An apostrophe precedes a text
    that a spreadsheet would read as a formula.
    """
    if noun not in LISTS:
        raise Http404(f"{noun[:60]}: no list; one of {', '.join(sorted(LISTS))}.")
    return export_list(request, LISTS[noun], noun, form)
