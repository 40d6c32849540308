"""The text form of names that Kafka takes as bytes: for storage, display, input and URLs.

Kafka accepts up to 32 kB of any bytes as a transactional id. Printable text is unchanged. A backslash is
written `\\\\`; a byte of an unprintable character (control and format characters, unassigned ones, separators
other than the space, invalid UTF-8) is written `\\xNN`. So the text form is printable UTF-8 without NUL or
surrogates, PostgreSQL stores it, and `unescape_text` restores the original bytes.

Printable characters are defined by Python's Unicode table, which grows with its versions: compare bytes,
never two text forms.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\(?:\\|x([0-9a-fA-F]{2}))?")


def escape_bytes(raw: bytes) -> str:
    """Return the text form of any bytes."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return _escape_each(raw)
    if text.isprintable() and "\\" not in text:
        return text
    return _escape_each(raw)


def unescape_text(text: str) -> bytes:
    """Return the bytes of a text form; an escape such as `\\x2e` is accepted for printable characters too.

    Raises ValueError, with a message for the user, on an invalid escape and on a surrogate.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start + 1} is half of a surrogate pair") from None
    return _ESCAPE.sub(_unescaped, raw) if b"\\" in raw else raw


def _escape_each(raw: bytes) -> str:
    # The backslashes are doubled first, so that those added by "backslashreplace" stay single.
    text = raw.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _hex(char) for char in text)


def _hex(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode())


def _unescaped(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes.fromhex(match[1].decode())
    if match[0] == b"\\\\":
        return b"\\"
    at = len(match.string[: match.start()].decode()) + 1
    raise ValueError(
        rf"the backslash at character {at} starts no escape: write \\ for a backslash or \xNN for a byte"
    )
