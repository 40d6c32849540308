"""A table of cases above the test that runs them."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

_Test = TypeVar("_Test", bound=Callable[..., None])


def cases(*rows: Any, ids: Sequence[str] | Callable[[Any], str] | None = None) -> Callable[[_Test], _Test]:
    """Run a test once for each row: a tuple of its last parameters, or the value of its last one."""

    def parametrized(test: _Test) -> _Test:
        width = len(rows[0]) if type(rows[0]) is tuple else 1
        names = list(inspect.signature(test).parameters)[-width:]
        values = rows if width > 1 else [(row,) for row in rows]
        return pytest.mark.parametrize(names, values, ids=ids)(test)

    return parametrized
