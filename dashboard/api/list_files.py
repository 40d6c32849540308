"""A whole list as one file: every page of it, one after another, as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Schema
from ninja.errors import ValidationError
from pydantic import BaseModel
from pydantic import ValidationError as WrongFields

#: Items that are read at once: what every list takes.
_AT_ONCE = 500
#: A gzip header, and the largest window.
_GZIP = 16 + zlib.MAX_WBITS
#: A spreadsheet takes a text for a formula that begins with one of these (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


#: Answers of a list, one after another.
Pages = Iterator[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ExportedList:
    """A list of the API: its function, the parameters that it takes, and what it answers."""

    read: Callable[[HttpRequest, Any], Mapping[str, object]]
    filters: type[BaseModel]
    answer: type[Schema]

    @property
    def columns(self) -> Sequence[str]:
        """Return the names of an item's fields."""
        item = self.answer.model_fields["items"].annotation.__args__[0]  # type: ignore[union-attr]
        return list(item.model_fields)

    def pages(self, request: HttpRequest) -> Pages:
        """Yield the pages of the list that a request's query string asks for; raises ValidationError."""
        wanted = self._wanted(request)
        following: str | None = ""
        while following is not None:
            answered = self.read(request, wanted.model_copy(update={"cursor": following}))
            page = self.answer.model_validate(answered).model_dump(mode="json")
            yield page
            following = page["next"]

    def _wanted(self, request: HttpRequest) -> BaseModel:
        asked = {**request.GET.dict(), "limit": _AT_ONCE, "cursor": ""}
        try:
            return self.filters.model_validate(asked)
        except WrongFields as error:
            raise ValidationError(
                [{**each, "loc": ("query", *each["loc"])} for each in error.errors()]
            ) from None


def export_list(request: HttpRequest, of: ExportedList, noun: str, form: str) -> StreamingHttpResponse:
    """Return the file of a list; what is wrong with the request is raised before it begins."""
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
    """Yield one gzip member: Django's middleware makes one of each part, of which browsers read the first."""
    stream = zlib.compressobj(wbits=_GZIP)
    for part in parts:
        yield stream.compress(part) + stream.flush(zlib.Z_SYNC_FLUSH)
    yield stream.flush()


def _csv_parts(of: ExportedList, first: Mapping[str, Any], rest: Pages) -> Iterator[str]:
    columns = of.columns
    yield _lines([columns])
    for page in _chained(first, rest):
        yield _lines([_cell(item[name]) for name in columns] for item in page["items"])


def _json_parts(of: ExportedList, first: Mapping[str, Any], rest: Pages) -> Iterator[str]:
    about = {name: value for name, value in first.items() if name not in ("items", "next")}
    yield json.dumps(about)[:-1] + ', "items": ['
    comma = ""
    for page in _chained(first, rest):
        yield comma + ",\n".join(map(json.dumps, page["items"]))
        comma = ",\n" if page["items"] or comma else ""
    yield "]}"


def _chained(first: Mapping[str, Any], rest: Pages) -> Pages:
    yield first
    yield from rest


async def _one_by_one(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what a generator that asks the database yields: the next page is read once this one is sent."""
    read = sync_to_async(lambda: next(parts, None))
    while (part := await read()) is not None:
        yield part


def _lines(rows: Any) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return (
        value if isinstance(value, int | float | None) and not isinstance(value, bool) else json.dumps(value)
    )
