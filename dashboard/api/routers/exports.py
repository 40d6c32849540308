"""`/api/v1/exports`: export a whole list as one file, with the list's filters."""

from typing import Literal

from django.http import Http404, HttpRequest, HttpResponseBase
from ninja import Router

from dashboard.api.list_files import ExportedList, export_list

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
