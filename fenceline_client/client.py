"""Ask the API of a Fenceline: typed answers, and one kind of error whose text is fit for a person.

Proxies and CA files come from the environment: HTTPS_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE.
"""

import http
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import requests

from fenceline.decode.typed import read_json
from fenceline.kafka.transactional_ids import key_of_name
from fenceline_client import shapes

T = TypeVar("T")
#: How long a connection, and each part of an answer, may take.
_CONNECT_S, _READ_S = 10, 60
#: Items of one request.
_PAGE = 500
#: Longer ids are addressed by their key, as on pages: proxies refuse longer lines.
_LONGEST_ID, _LONGEST_SEGMENT = 512, 2_000
_UPDATE = "Server and command differ in version: update the older one."
#: What an address that the API does not have is answered with.
_NO_ADDRESS = "There is nothing at /"


class ClientError(Exception):
    """There is no answer. The text says what happened, where, and what to do."""


class ApiRefusal(ClientError):
    """The API answered with an error: its `status`, and further members of the problem."""

    def __init__(self, text: str, status: int, members: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.status, self.members = status, members


class UnaddressableName(ClientError):
    """The API has no address for a name: it has dots alone, is empty, or is too long for proxies."""


@dataclass(frozen=True, slots=True)
class TypedAnswer(Generic[T]):
    """An answer with the JSON that it was read from."""

    value: T
    raw: Any


@dataclass(frozen=True, slots=True)
class ListAnswer(Generic[T]):
    """The items of a list; `has_more`: the server has more of them. `raw` is one JSON list answer."""

    items: Sequence[T]
    gaps: Sequence[shapes.UnseenPart]
    has_more: bool
    raw: Mapping[str, Any]


class _Bearer(requests.auth.AuthBase):
    """Sends the token; with it, requests reads no password from ~/.netrc in its place."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class FencelineClient:
    """A Fenceline at a base URL such as `https://fenceline.example.org`, asked with one token.

    Lists have up to `most` items; their criteria are the API's parameters. Every method raises `ClientError`.
    """

    def __init__(self, url: str, token: str) -> None:
        self.url, self._token = url.rstrip("/"), token
        self._session = requests.Session()
        self._session.auth = _Bearer(token)
        self._session.headers["Accept"] = "application/json"

    def page_url(self, *segments: object) -> str:
        return "/".join((self.url, *(_quoted(str(segment)) for segment in segments)))

    def clusters(self) -> ListAnswer[shapes.WatchedCluster]:
        return self._list(shapes.WatchedCluster, "clusters", None, {})

    def cluster_names(self, cluster: str = "") -> Sequence[str]:
        """Return the cluster that is named, without one the names of all."""
        return [cluster] if cluster else [row.cluster for row in self.clusters().items]

    def collectors(self) -> ListAnswer[shapes.ListedCollector]:
        return self._list(shapes.ListedCollector, "collectors", None, {})

    def incidents(self, most: int, **criteria: str) -> ListAnswer[shapes.ListedIncident]:
        """Return incidents, the newest first."""
        return self._list(shapes.ListedIncident, "incidents", most, criteria)

    def transactions(self, most: int, **criteria: str) -> ListAnswer[shapes.ListedTransaction]:
        return self._list(shapes.ListedTransaction, "transactions", most, criteria)

    def groups(self, most: int, **criteria: str) -> ListAnswer[shapes.ListedGroup]:
        return self._list(shapes.ListedGroup, "groups", most, criteria)

    def queries(self, most: int, **criteria: str) -> ListAnswer[shapes.ListedQuery]:
        return self._list(shapes.ListedQuery, "queries", most, criteria)

    def partitions(self, most: int, **criteria: str) -> ListAnswer[shapes.ListedPartition]:
        return self._list(shapes.ListedPartition, "partitions", most, criteria)

    def findings(self, most: int, **criteria: str) -> ListAnswer[shapes.RelatedFinding]:
        """Return findings, the newest first."""
        return self._list(shapes.RelatedFinding, "findings", most, criteria)

    def incident(self, number: int) -> TypedAnswer[shapes.FullIncident]:
        return self._one(shapes.FullIncident, "incidents", str(number))

    def transaction(self, cluster: str, transactional_id: str) -> TypedAnswer[shapes.FullTransaction]:
        return self._one(shapes.FullTransaction, "transactions", cluster, addressed(transactional_id))

    def group(self, cluster: str, group: str) -> TypedAnswer[shapes.FullGroup]:
        return self._one(shapes.FullGroup, "groups", cluster, addressed(group))

    def partition(self, cluster: str, topic: str, number: int) -> TypedAnswer[shapes.FullPartition]:
        return self._one(shapes.FullPartition, "partitions", cluster, topic, str(number))

    def query(self, name: str, cluster: str = "") -> TypedAnswer[shapes.FullQuery]:
        """Return one query by its id, Spark's query id or its name."""
        return self._one(shapes.FullQuery, "queries", name, cluster=cluster)

    def query_safety(self, name: str, cluster: str = "") -> TypedAnswer[shapes.StopSafety]:
        """Return whether one query is safe to restart now."""
        return self._one(shapes.StopSafety, "queries", name, "safe_to_stop", cluster=cluster)

    def cluster_safety(self, cluster: str) -> TypedAnswer[shapes.StopSafety]:
        return self._one(shapes.StopSafety, "clusters", cluster, "safe_to_stop")

    def capabilities(self, cluster: str) -> TypedAnswer[shapes.CapabilityReport]:
        """Return what Fenceline can show and do on a cluster."""
        return self._one(shapes.CapabilityReport, "clusters", cluster, "capabilities")

    def preflight(self, cluster: str) -> TypedAnswer[shapes.PreflightReport]:
        """Return the settings of a cluster that threaten exactly-once."""
        return self._one(shapes.PreflightReport, "clusters", cluster, "preflight")

    def action(self, number: int) -> TypedAnswer[shapes.PlannedAction]:
        return self._one(shapes.PlannedAction, "actions", str(number))

    def plan(
        self, cluster: str, act: str, subjects: Sequence[str], *, force: bool
    ) -> TypedAnswer[shapes.PlannedAction]:
        """Make a plan; nothing is sent to the cluster but questions."""
        asked = {"cluster": cluster, "act": act, "subjects": list(subjects), "force": force}
        return _read(shapes.PlannedAction, self._exchange("POST", ("actions", "plan"), body=asked))

    def execute(
        self, number: int, *, digest: str, typed: str, reason: str
    ) -> TypedAnswer[shapes.PlannedAction]:
        """Have a plan executed once; the same caller may repeat this and gets the same answer."""
        confirmed = {"digest": digest, "confirm": typed, "reason": reason}
        path = ("actions", str(number), "execute")
        return _read(shapes.PlannedAction, self._exchange("POST", path, body=confirmed))

    def _one(self, shape: type[T], *segments: str, **parameters: str) -> TypedAnswer[T]:
        return _read(shape, self._exchange("GET", segments, parameters))

    def _list(
        self, shape: type[T], noun: str, most: int | None, criteria: Mapping[str, str]
    ) -> ListAnswer[T]:
        """Return a list page by page; with `most` None the list has only one page."""
        if most is None:
            return _list_of(shape, [self._exchange("GET", (noun,), criteria)], None)
        pages = islice(self._pages(noun, criteria, min(most, _PAGE)), -(-most // _PAGE))
        return _list_of(shape, list(pages), most)

    def _pages(self, noun: str, criteria: Mapping[str, str], size: int) -> Iterator[Any]:
        following: str | None = ""
        while following is not None:
            page = self._exchange("GET", (noun,), {**criteria, "limit": str(size), "cursor": following})
            yield page
            following = page.get("next") if isinstance(page, dict) else None

    def _exchange(
        self,
        method: str,
        segments: Sequence[str],
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the JSON of one answer."""
        address = "/".join((self.url, "api/v1", *map(_quoted, segments)))
        given = {name: value for name, value in (parameters or {}).items() if value}
        try:
            # A redirect would repeat a POST as a GET, or send the token elsewhere.
            response = self._session.request(
                method, address, given, json=body, timeout=(_CONNECT_S, _READ_S), allow_redirects=False
            )
        except (OSError, ValueError) as error:
            raise ClientError(self._hidden(f"{self.url} cannot be reached: {_reason(error)}")) from error
        return self._content(response)

    def _content(self, response: requests.Response) -> Any:
        status, where = response.status_code, f"{self.url} answered {response.status_code}"
        if 300 <= status < 400:
            target = response.headers.get("Location", "nowhere")
            raise ClientError(f"{where}, a redirect to {target}. Log in with the URL that serves the API.")
        content, is_json = _json_of(response)
        if status >= 400:
            raise self._refusal(response, content if isinstance(content, dict) else {})
        if not is_json:
            kind = response.headers.get("Content-Type", "no content type")
            raise ClientError(
                f"{where} with {kind} that is no valid JSON. Check that the URL is Fenceline's, and the "
                "proxies between."
            )
        return content

    def _refusal(self, response: requests.Response, problem: Mapping[str, Any]) -> ApiRefusal:
        status = response.status_code
        phrase = http.HTTPStatus(status).phrase if status in set(http.HTTPStatus) else "unknown status"
        detail = str(problem.get("detail") or f"{phrase}.")
        text = f"{self.url} answered {status}: {detail}{_remedy(response, detail, self.url)}"
        names = [f"{candidate['id']} on {candidate.get('cluster')}" for candidate in candidates_of(problem)]
        candidates = f" Candidates: {', '.join(names)}." if names else ""
        return ApiRefusal(self._hidden(text + candidates), status, problem)

    def _hidden(self, text: str) -> str:
        """Return a text without the token, which a server may send back."""
        return text.replace(self._token, "[token]")


def known(ask: Callable[..., TypedAnswer[T]], *names: object) -> TypedAnswer[T] | None:
    """Return an answer, None where the server has nothing of these names."""
    try:
        return ask(*names)
    except UnaddressableName:
        return None
    except ApiRefusal as refusal:
        if refusal.status != 404:
            raise
        return None


def addressed(name: str) -> str:
    """Return an id as addresses take it: itself, or `~` and its key where proxies would change the path."""
    if len(name) <= _LONGEST_ID and not {".", "..", ""} & set(name.replace("\\", "/").split("/")):
        return name
    with suppress(ValueError):
        return "~" + key_of_name(name).hex()
    return name


def _quoted(segment: str) -> str:
    if segment in ("", ".", "..") or len(segment) > _LONGEST_SEGMENT:
        raise UnaddressableName(f"The API has no address for the name '{segment[:20]}'. Use its id.")
    return quote(segment, safe="", errors="surrogateescape")


def _read(shape: type[T], content: Any) -> TypedAnswer[T]:
    try:
        return TypedAnswer(read_json(shape, content), content)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ClientError(f"An answer of the API cannot be read ({error}). {_UPDATE}") from error


def _list_of(shape: type[T], pages: Sequence[Any], most: int | None) -> ListAnswer[T]:
    try:
        served = [item for page in pages for item in page["items"]]
        raw = {"gaps": [], **pages[-1], "items": served[:most]}
        has_more = len(served) > len(raw["items"]) or raw.get("next") is not None
    except (TypeError, KeyError) as error:
        raise ClientError(f"A list of the API cannot be read ({error}). {_UPDATE}") from error
    gaps = _read(tuple[shapes.UnseenPart, ...], raw["gaps"]).value
    values = [_read(shape, item).value for item in raw["items"]]
    return ListAnswer(values, gaps, has_more, raw)


def _json_of(response: requests.Response) -> tuple[Any, bool]:
    """Return the JSON of an answer, and whether it is some."""
    if "json" not in response.headers.get("Content-Type", ""):
        return None, False
    try:
        return response.json(), True
    except (ValueError, RecursionError):
        return None, False


def _remedy(response: requests.Response, detail: str, url: str) -> str:
    """Return what to do about an error besides what its detail says."""
    status, wait = response.status_code, response.headers.get("Retry-After", "")
    if status == 401:
        return f" Run: fenceline login {url}"
    if status == 404 and detail.startswith(_NO_ADDRESS):
        return f" {_UPDATE}"
    if status == 429 or status >= 500:
        return f" Try again in {wait} s." if wait.isdecimal() else " Try again later."
    return ""


def candidates_of(problem: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return what an ambiguous name may mean; each has an `id`."""
    listed = problem.get("candidates")
    candidates = listed if isinstance(listed, list) else []
    return [candidate for candidate in candidates if isinstance(candidate, dict) and "id" in candidate]


def _reason(error: BaseException) -> str:
    """Return the innermost cause of a failed request, and what to do about it."""
    root = error
    while deeper := root.__cause__ or root.__context__:
        root = deeper
    words = getattr(root, "verify_message", "") or getattr(root, "strerror", "") or str(root)
    return f"{words or type(root).__name__}. {_advice(error, root)}"


def _advice(error: BaseException, root: BaseException) -> str:
    if isinstance(error, requests.exceptions.SSLError) or isinstance(root, ssl.SSLError):
        return "Check the scheme and the host; REQUESTS_CA_BUNDLE names the file of a private CA."
    if isinstance(error, requests.exceptions.ProxyError):
        return "Check HTTPS_PROXY and NO_PROXY."
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return "Check the URL, and that Fenceline runs."
    return "Check the URL, the proxy and REQUESTS_CA_BUNDLE."
