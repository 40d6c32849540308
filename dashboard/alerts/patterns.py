"""Users' regular expressions by RE2, as in an Alertmanager: their time is linear in the text. Python's `re`
backtracks: `(a+)+b` on forty letters takes years, and would delay every alert.
"""

from collections.abc import Callable
from functools import lru_cache

import re2

from dashboard.alerts.validation import clip_text

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
