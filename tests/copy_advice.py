"""No text advises to remove files of a checkpoint without naming the copy to make first."""

import re

#: As an order: "removed", "removes" and "is removed" report something.
_REMOVES = re.compile(
    r"(?<!not )(?<!n't )(?<!to )\b(remove|delete|wipe|rm|unlink|erase|discard)\b", re.IGNORECASE
)
_COPIES = re.compile(
    r"\bcopy (?:the|its|both|that) ?.*?(?:to another place|aside|first)", re.IGNORECASE | re.DOTALL
)


def assert_advises_a_copy_first(text: str) -> None:
    """Fail where a text orders to remove something before it orders a copy."""
    removes = _REMOVES.search(text)
    if removes is None:
        return
    copies = _COPIES.search(text)
    assert copies is not None, f"removes without a copy: {text}"
    assert copies.start() < removes.start(), f"removes before it copies: {text}"
