"""The start of a detail page: a sentence of fact about its subject, and its explanation."""

from collections.abc import Sequence
from typing import NamedTuple

from fenceline.formatting import count_noun
from fenceline.text.sentences import Sentence


class DetailHeadline(NamedTuple):
    """One sentence of fact, and the sentences that explain it."""

    sentence: Sentence
    explanation: Sentence = ()


class BlockedConsumer(NamedTuple):
    """A blocked group or query, and the records that it is behind; None if unknown."""

    name: str
    behind: int | None


def blocked_words(consumers: Sequence[BlockedConsumer]) -> str:
    """Return the blocked consumers, the last one by name: `billing is 1,465 records behind`."""
    if not consumers:
        return "no known consumer is blocked"
    first = max(consumers, key=lambda consumer: consumer.behind or 0)
    words = f"{first.name} is {behind_words(first.behind) or 'blocked'}"
    if others := len(consumers) - 1:
        verb = "is" if others == 1 else "are"
        words += f", and {count_noun(others, 'more consumer')} {verb} blocked"
    return words


def behind_words(number: int | None, *, at_least: bool = False) -> str:
    """Return `1,465 records behind`; "" for none and for an unknown number."""
    return f"{'at least ' if at_least else ''}{count_noun(number, 'record')} behind" if number else ""
