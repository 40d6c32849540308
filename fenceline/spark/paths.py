"""Convert paths between Spark's and fsspec's spelling.

Spark takes Hadoop's paths: `s3a://bucket/x`, `file:/x`, `/x` and `x` against `fs.defaultFS`. fsspec opens
URLs: `s3://bucket/x`, `file:///x`. Prefixes with another spelling on the dashboard's machine are mapped
(`[[checkpoints]] map`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

#: Hadoop's names of stores, and fsspec's if they differ.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
#: A scheme by RFC 3986; a single letter would be a drive.
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):(.*)", re.DOTALL)


def to_url(path: str, *, mapped: Mapping[str, str] | None = None) -> str:
    """Return fsspec's URL for a path in Spark's spelling, without a slash at its end.

    A path without a scheme is on the local store, a relative one begins at its root. The longest matching
    prefix of `mapped` is replaced first; it ends at a slash, or at the path's end.
    """
    spelled = _mapped(path, mapped or {})
    scheme, authority, rest = _split(spelled)
    if not scheme:
        scheme, rest = "file", spelled
    # As in Hadoop's Path: no double slashes, no dots.
    folder = posixpath.normpath("/" + rest.lstrip("/"))
    return f"{_SCHEMES.get(scheme, scheme)}://{authority}{folder if folder != '/' or not authority else ''}"


def scheme_of(path: str) -> str:
    """Return the scheme of a path in Spark's spelling, in lower case; "" without one."""
    return _split(path)[0]


def join_path(folder: str, *names: str) -> str:
    """Return the path of an entry below a folder, in the folder's own spelling."""
    if not names:
        return folder
    head = folder if folder.endswith("/") else f"{folder}/"
    return head + "/".join(names)


def both_spellings(spelled: str, url: str) -> str:
    """Return a path for people: in the configuration's spelling and, if different, in fsspec's."""
    known = url.rstrip("/"), url.removeprefix("file://").rstrip("/")
    return spelled if spelled.rstrip("/") in known else f"{spelled} (opened as {url})"


def _split(path: str) -> tuple[str, str, str]:
    """Return scheme, authority and the path below it; the first two are "" if absent."""
    match = _SCHEME.fullmatch(path)
    if match is None or "/" in match[1]:
        return "", "", path
    scheme, rest = match[1].lower(), match[2]
    if not rest.startswith("//"):
        return scheme, "", rest
    authority, slash, below = rest[2:].partition("/")
    return scheme, authority, slash + below


def _mapped(path: str, mapped: Mapping[str, str]) -> str:
    fitting = [prefix for prefix in mapped if prefix and _begins(path, prefix)]
    if not fitting:
        return path
    longest = max(fitting, key=len)
    rest = path[len(longest) :]
    return join_path(mapped[longest], rest.lstrip("/")) if rest.strip("/") else mapped[longest]


def _begins(path: str, prefix: str) -> bool:
    return path.startswith(prefix) and (prefix.endswith("/") or path[len(prefix) :][:1] in ("", "/"))
