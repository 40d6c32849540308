"""Features that Python 3.9 and 3.10 lack, for code in users' Spark.

EMR's default is 3.9, the official image of Spark 4.0 has 3.10.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["SLOTS", "UTC", "StrEnum", "pairwise", "zip_equal"]

T = TypeVar("T")

UTC = timezone.utc
#: Options of a dataclass: without slots its instances are larger, but otherwise the same.
SLOTS: Mapping[str, bool] = {"slots": True} if sys.version_info >= (3, 10) else {}

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:

    class StrEnum(str, Enum):
        """An enumeration of texts that are formatted as their values."""

        __str__ = str.__str__
        __format__ = str.__format__


if sys.version_info >= (3, 10):
    from itertools import pairwise
else:

    def pairwise(some: Iterable[T]) -> Iterator[tuple[T, T]]:
        """Yield each element with its successor."""
        rest = iter(some)
        one = next(rest, None)
        for other in rest:
            yield one, other
            one = other


if TYPE_CHECKING:
    zip_equal = zip
else:

    def zip_equal(*some: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Zip iterables of one length; raises ValueError for different lengths, from Python 3.10 on."""
        return zip(*some, strict=True) if sys.version_info >= (3, 10) else zip(*some)
