"""Bundles of scripts, styles and icons: one file per kind of page, compressed and cached permanently.

A bundle concatenates files of `dashboard/static` at the first request, so no build step is needed. Its
address contains a digest of its content, so the content of an address never changes.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.contrib.staticfiles import finders
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

#: Files by bundle, in the order of execution.
BUNDLES = {
    "app.css": tuple(
        f"css/{name}.css"
        for name in (
            "fonts", "base", "parts", "tables", "pages", "detail",
            "history", "standings", "queries", "alerts", "acting", "find", "flow", "incidents",
            "print",
        )
    ),
    # Runs before the first paint; no other script delays it.
    "theme.js": ("js/theme.js",),
    "app.js": (
        "vendor/htmx-2.0.11.min.js",
        "vendor/idiomorph-ext-0.8.0.min.js",
        "js/times.js",
        "js/reload.js",
        "js/live.js",
        "js/morph.js",
        "js/range.js",
        "js/keys.js",
        "js/find.js",
        "js/select.js",
        "js/confirm.js",
    ),
    "plotly.css": ("vendor/plotly-4.1.1.css",),
    "charts.js": ("js/styles.js", "js/charts.js"),
    "plotly.js": ("vendor/plotly-cartesian-4.1.1.min.js",),
    # Inserted into the file of an incident.
    "report.css": ("css/report.css",),
    "icon.svg": ("img/icon.svg",),
    "icon-warning.svg": ("img/icon-warning.svg",),
    "icon-critical.svg": ("img/icon-critical.svg",),
}  # fmt: skip
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
#: A script may end without a semicolon, and the next begin with a bracket.
_BETWEEN = {"css": b"\n", "js": b"\n;\n", "svg": b""}
_FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a bundle, plain and as gzip."""

    content: bytes
    compressed: bytes
    digest: str
    content_type: str


def bundle_url(name: str) -> str:
    """Return the address of a bundle; raises KeyError for a name that BUNDLES lacks."""
    return f"{reverse('bundle', args=[name])}?v={bundle_of(name).digest}"


@cache
def bundle_of(name: str) -> Bundle:
    """Return a bundle, with its content at the first call; raises KeyError for an unknown name."""
    suffix = name.rpartition(".")[2]
    paths = {file: finders.find(file) for file in BUNDLES[name]}
    if missing := [file for file, path in paths.items() if path is None]:
        raise FileNotFoundError(f"no static file {missing[0]}")
    content = _BETWEEN[suffix].join(Path(str(path)).read_bytes() for path in paths.values())
    return Bundle(
        content,
        gzip.compress(content, mtime=0),
        hashlib.sha256(content).hexdigest()[:10],
        _TYPES[suffix],
    )


@require_safe
def serve_bundle(request: HttpRequest, name: str) -> HttpResponse:
    """Answer with a bundle; only the address with its digest may be cached."""
    if name not in BUNDLES:
        raise Http404("Unknown file.")
    bundle = bundle_of(name)
    zipped = "gzip" in request.headers.get("Accept-Encoding", "")
    response = HttpResponse(
        bundle.compressed if zipped else bundle.content,
        content_type=bundle.content_type,
        headers={"Cache-Control": _FOR_EVER if request.GET.get("v") == bundle.digest else "no-cache"},
    )
    if zipped:
        response.headers["Content-Encoding"] = "gzip"
    patch_vary_headers(response, ["Accept-Encoding"])
    return response
