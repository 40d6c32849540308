"""Remember since when each part of a cluster cannot be read."""

from collections.abc import Mapping


class GapStarts:
    """The starts of the present gaps, by scope."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def date_gaps(self, reasons: Mapping[str, str], now_ms: int) -> Mapping[str, tuple[int, str]]:
        """Return start and reason of each gap; other gaps have ended."""
        self._since = {scope: self._since.get(scope, now_ms) for scope in reasons}
        return {scope: (self._since[scope], reason) for scope, reason in reasons.items()}
