"""Numbers of the configuration as texts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fenceline.formatting import format_duration

#: The unit of a number by the end of its name, in milliseconds.
_UNITS_MS = {"s": 1_000, "d": 86_400_000}


class SettingLabel(NamedTuple):
    """A number of the configuration: its configured name, its label, and its value with a unit."""

    name: str
    words: str
    value: str


def setting_labels(values: Mapping[str, float]) -> Sequence[SettingLabel]:
    """Return the labels of `[limits]` or `[retention]`."""
    return [_label(name, value) for name, value in values.items()]


def _label(name: str, value: float) -> SettingLabel:
    rest, _, end = name.rpartition("_")
    if end in _UNITS_MS:
        shown = format_duration(round(value * _UNITS_MS[end])) if value else "never"
        return SettingLabel(name, rest.replace("_", " "), shown)
    if end == "percent":
        return SettingLabel(name, rest.replace("_", " "), f"{value:g} %")
    if end == "mb":
        shown = f"{value:g} MB per second of a broker" if value else "none"
        return SettingLabel(name, f"{rest} of transactions", shown)
    if end == "factor":
        return SettingLabel(name, rest.replace("_", " "), f"{value:g} times as long as usual")
    return SettingLabel(name, name.replace("_", " "), f"{value:,g}")
