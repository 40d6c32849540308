"""What tests request from the API."""

from collections.abc import Callable
from typing import Any

Ask = Callable[..., Any]
Call = Callable[..., Any]


def all_items(ask: Ask, path: str) -> list[Any]:
    """Return every item of a list, page by page."""
    found, after = [], ""
    while after is not None:
        body = ask(f"{path}&cursor={after}")
        found += body["items"]
        after = body["next"]
    return found
