"""What schemathesis loads by SCHEMATHESIS_HOOKS: a server reads no address of more than 64 KiB."""

from typing import Any

import schemathesis  # type: ignore[import-not-found]

#: Escaped, with room for the headers.
LONGEST = 48 * 1024


@schemathesis.hook  # type: ignore[untyped-decorator]
def filter_case(context: Any, case: Any) -> bool:
    """Leave out what does not fit in an address."""
    values = {**(case.path_parameters or {}), **(case.query or {})}
    return 12 * sum(len(str(value)) for value in values.values()) < LONGEST
