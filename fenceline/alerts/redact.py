"""Hide secrets in addresses, and in texts that may repeat them. Pure."""

import base64
import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

HIDDEN = "***"
#: Shorter secrets would match in every text.
_SHORTEST = 4
#: A part of a path of this length is a token, as in chats' addresses.
_TOKEN = 16
_WEB = ("http", "https")
_PRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def redact_url(address: str) -> str:
    """Return an address for a page or a log, without credentials, tokens, and the values of its query.

    Other addresses than http keep only their scheme: apprise puts tokens anywhere.
    """
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return HIDDEN
    if parts.scheme not in _WEB:
        return f"{parts.scheme}://{HIDDEN}" if parts.scheme and "://" in address else HIDDEN
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    login = f"{HIDDEN}@" if "@" in parts.netloc else ""
    path = "/".join(HIDDEN if len(part) >= _TOKEN else part for part in parts.path.split("/"))
    query = "&".join(f"{part.partition('=')[0]}={HIDDEN}" for part in parts.query.split("&") if part)
    return clean_line(f"{parts.scheme}://{login}{host}{port}{path}{'?' if query else ''}{query}", 300)


class Redactor:
    """Knows a channel's secrets, in every spelling in which an answer or an error may repeat them."""

    def __init__(self, address: str, secrets: Iterable[str] = ()) -> None:
        spelled = {spelling for secret in (*secrets, *_secrets(address)) for spelling in _spellings(secret)}
        self._hidden = sorted(
            (spelling for spelling in spelled if len(spelling) >= _SHORTEST), key=len, reverse=True
        )

    def redact(self, text: str) -> str:
        for spelling in self._hidden:
            text = text.replace(spelling, HIDDEN)
        return text


def _secrets(address: str) -> list[str]:
    """Return the secrets of an address: the parts that `redact_url` hides."""
    try:
        parts = urlsplit(address)
        user, password = parts.username or "", parts.password or ""
    except ValueError:
        return [address]
    pieces = parts.path.split("/")
    if parts.scheme not in _WEB:
        query = [word for pair in parse_qsl(parts.query) for word in pair]
        return [address, user, password, parts.netloc, parts.netloc.rpartition("@")[2], *pieces, *query]
    secrets = [piece for piece in pieces if len(piece) >= _TOKEN]
    secrets += [value for _, value in parse_qsl(parts.query, keep_blank_values=True)]
    if user or password:
        login = f"{unquote(user)}:{unquote(password)}"
        secrets += [user, password, base64.b64encode(login.encode()).decode()]
    return secrets


def _spellings(secret: str) -> tuple[str, ...]:
    plain = unquote(secret)
    quoted = quote(plain), quote(plain, safe=""), quote_plus(plain)
    return (secret, secret.removeprefix("whsec_"), plain, *quoted)


def clean_line(text: str, longest: int) -> str:
    """Return external text on one line, shortened, without characters that pages or databases reject."""
    text = _PRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", " ").replace("\n", " "))
    return text if len(text) <= longest else text[: longest - 1] + "…"
