"""Fixed-length keys of transactional ids: an id may be 32 kB long, an index entry may not."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress

from fenceline.decode import text


def key_of(raw_id: bytes) -> bytes:
    """Return the 32-byte key of a transactional id."""
    return hashlib.sha256(raw_id).digest()


def key_of_name(name: str) -> bytes:
    """Return the key of an id or a group by its escaped text. Raises ValueError for other text."""
    return key_of(text.unescape_text(name))


def keys_named(name: str) -> Iterator[bytes]:
    """Yield the possible keys of a name: an id's escaped text, or `~` and a key's 64 hexadecimal digits."""
    with suppress(ValueError):
        yield key_of_name(name)
    if len(name) == 65 and name.startswith("~"):
        with suppress(ValueError):
            yield bytes.fromhex(name[1:])
