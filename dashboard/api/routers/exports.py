"""`/api/v1/exports`: a whole list as one file, with the filters of the list."""

from __future__ import annotations

from typing import Literal

from django.http import Http404, HttpRequest, HttpResponseBase
from ninja import Router

from dashboard.api.list_files import ExportedList, export_list

router = Router(tags=["exports"])

#: By noun; filled in `dashboard.api` with every list that has pages.
LISTS: dict[str, ExportedList] = {}


@router.get("/{noun}.{form}", summary="Download a whole list as CSV or JSON", response={200: None})
def download_list(
    request: HttpRequest, noun: str, form: Literal["csv", "json"], **_: object
) -> HttpResponseBase:
    """Every item of the list `noun`, whatever its length, with the list's own parameters.

    CSV has a column for each field; objects and lists are JSON in their cell. A text that a spreadsheet
    would take for a formula begins with an apostrophe.
    """
    if noun not in LISTS:
        raise Http404(f"{noun[:60]}: no list; one of {', '.join(sorted(LISTS))}.")
    return export_list(request, LISTS[noun], noun, form)
