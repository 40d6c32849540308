"""Read one JSON API over HTTP: GET requests to one configured URL, each with a deadline.

It follows no redirects and uses no proxy, so that no other host gets a request.
"""

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

#: Maximum bytes of an answer.
LARGEST = 8_000_000
_CHUNK = 65_536
_OK, _REDIRECTS, _REFUSALS = 200, range(300, 400), (401, 403)


class ApiUnavailable(Exception):
    """An API cannot be read; the text says what, where and what to do."""


class JsonApi:
    """A JSON API by its URL; `product` is the expected server, for messages."""

    def __init__(self, url: str, headers: Mapping[str, str], product: str) -> None:
        self.url, self._headers, self._product = url.rstrip("/"), headers, product

    def get(self, path: str, end: float) -> Any:
        """Return the JSON at a path before `time.monotonic()` passes `end`. Raises ApiUnavailable."""
        try:
            status, body = self._request(path, end)
        except TimeoutError:
            raise self._failure("does not answer in time: look at its load and at the network") from None
        except (OSError, http.client.HTTPException) as error:
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            raise self._failure(f"does not answer ({why}): start it, or correct the URL") from None
        if status in _REFUSALS:
            raise self._failure(f"refuses the request ({status}): set headers for it") from None
        if status in _REDIRECTS:
            raise self._failure(f"redirects ({status}), which is not followed: name the address itself")
        if status != _OK:
            raise self._failure(f"answers {path} with {status}: is it the URL of {self._product}?")
        try:
            return json.loads(body)
        except ValueError:
            raise self._failure(f"answers {path} with no JSON: is it the URL of {self._product}?") from None

    def unexpected(self, path: str, error: Exception) -> ApiUnavailable:
        """Return the error for an answer of an unexpected shape."""
        why = f"{type(error).__name__}: {error}"[:100]
        return self._failure(
            f"answers {path} in a form that is not known ({why}): is it the URL of {self._product}, and of a "
            "version that docs/engines.md names?"
        )

    def _failure(self, what: str) -> ApiUnavailable:
        return ApiUnavailable(f"{self.url} {what}")

    def _request(self, path: str, end: float) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=_left_s(end), context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=_left_s(end))
        with closing(connection):
            headers = {"Accept": "application/json", **self._headers}
            connection.request("GET", f"{parts.path}{path}", headers=headers)
            answer = connection.getresponse()
            return answer.status, self._body(connection, answer, end)

    def _body(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, end: float
    ) -> bytes:
        """Read an answer to its end: each part gets the remaining time, not the whole timeout."""
        body = bytearray()
        while True:
            if connection.sock is not None:
                connection.sock.settimeout(_left_s(end))
            _left_s(end)
            part = answer.read1(_CHUNK)
            if not part:
                return bytes(body)
            body += part
            if len(body) > LARGEST:
                raise self._failure(f"answers with more than {LARGEST:,} bytes: that is not read")


def _left_s(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
