"""What the doctor says of a cluster, for its tests."""

from __future__ import annotations

from collections.abc import Mapping

from collectors.doctor import Check, examine


def look_over(properties: Mapping[str, str], *, sees_all: bool = False, timeout_s: float = 10) -> list[Check]:
    """Return every check, with time enough for a busy machine."""
    return list(examine(properties, sees_all_ids=sees_all, timeout_s=timeout_s, patience_s=300))
