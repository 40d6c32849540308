"""Transactional ids as keys of a fixed length: ids may be 32 kB long, index entries may not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress

from fenceline.decode import text


def key_of(raw_id: bytes) -> bytes:
    """Return the key of a transactional id, 32 bytes: ids may be 32 kB long, index entries may not."""
    return hashlib.sha256(raw_id).digest()


def keys_named(name: str) -> Iterator[bytes]:
    """Yield the keys that a name may mean: an id's text form, or `~` and a key's 64 hexadecimal digits."""
    with suppress(ValueError):
        yield key_of(text.unescape_text(name))
    if len(name) == 65 and name.startswith("~"):
        with suppress(ValueError):
            yield bytes.fromhex(name[1:])
