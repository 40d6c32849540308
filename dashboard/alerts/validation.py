"""Check users' input for silences and channels: return the usable value or raise ValueError.

Users' regular expressions are RE2's, as in an Alertmanager: their time is linear in the text. Python's `re`
backtracks: `(a+)+b` on forty letters takes years, and would delay every alert.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import re2

Value = TypeVar("Value")

#: Maximum characters; longer texts are mistakes or attacks.
LONGEST_NAME = 64
LONGEST_REASON = 2_000
_SHOWN = 60
#: The labels that alerts may have (`labels.py` makes them).
LABELS = (
    "alertname", "application", "cluster", "collector", "contact", "group", "incident", "partition", "query",
    "query_name", "runbook", "severity", "subject", "subject_kind", "team", "topic", "transactional_id",
)  # fmt: skip
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


class Unfit(ValueError):
    """Unusable input: by field, the problem and the remedy, as sentences."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__(" ".join(fields.values()))
        self.fields = fields


class Checks:
    """Runs checks of several fields and collects their errors, so that all are reported at once."""

    def __init__(self) -> None:
        self.wrong: dict[str, str] = {}

    def check_field(self, name: str, check: Callable[[], Value], otherwise: Value) -> Value:
        """Return the check's result; for a ValueError record its text and return `otherwise`."""
        try:
            return check()
        except ValueError as error:
            self.wrong.setdefault(name, str(error))
            return otherwise

    def raise_errors(self) -> None:
        """Raise `Unfit` with all recorded errors."""
        if self.wrong:
            raise Unfit(self.wrong)


def required_line(value: str, what: str, longest: int) -> str:
    """Return a required text of one line, stripped; raises ValueError."""
    return _text(value.strip(), value.strip(), what, longest)


def required_text(value: str, what: str, longest: int) -> str:
    """Return a required text of any number of lines, stripped; raises ValueError."""
    words = value.replace("\r\n", "\n").strip()
    return _text(words, words.replace("\n", " ").replace("\t", " "), what, longest)


def _text(words: str, shown: str, what: str, longest: int) -> str:
    if not words:
        raise ValueError(f"{what} is missing: write one.")
    if len(words) > longest:
        raise ValueError(f"{what} has {len(words):,} characters; at most {longest:,} are kept: shorten it.")
    bad = next((char for char in shown if not char.isprintable()), None)
    if bad is not None:
        raise ValueError(f"{what} has a character that cannot be shown (U+{ord(bad):04X}): remove it.")
    return words


def check_label_name(name: str) -> None:
    """Raise ValueError unless alerts have a label of this name."""
    if not _LABEL.fullmatch(name):
        raise ValueError(f"“{clip_text(name)}” is not the name of a label: letters, digits and _ only.")
    if name not in LABELS:
        raise ValueError(f"No alert has a label “{clip_text(name)}”: labels are {', '.join(LABELS)}.")


def seconds_within(value: Any, what: str, least: float, most: float, spelled: str) -> float | None:
    """Return a number of seconds, None for None and ""; raises ValueError. `spelled`: the bounds in words."""
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not least <= number <= most:
        raise ValueError(f"{what} “{clip_text(str(value))}” is not a number of seconds from {spelled}.")
    return number


def clip_text(words: str) -> str:
    """Return the beginning of a user's text, fit for a sentence."""
    shown = "".join(char if char.isprintable() else "�" for char in words[:_SHOWN])
    return shown if len(words) <= _SHOWN else f"{shown}…"


_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
#: Maximum bytes of one pattern, including its cached states.
_OPTIONS.max_mem = 1 << 20


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a test whether a pattern matches a whole text; raises ValueError with a readable message."""
    try:
        compiled = re2.compile(_encoded(pattern), _OPTIONS)
    except re2.error as error:
        raise ValueError(
            f"“{clip_text(pattern)}” is not a regular expression of RE2, which has no look-around and no "
            f"back references: {error.args[0].decode(errors='replace')}."
        ) from error
    return lambda text: compiled.fullmatch(_encoded(text)) is not None


def _encoded(text: str) -> bytes:
    """Return the bytes for RE2; a lone surrogate, which labels may contain, is one character."""
    return text.encode(errors="surrogatepass")
