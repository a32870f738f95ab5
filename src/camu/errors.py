"""The errors a user may meet: one sentence each, with the exit code of the command line.

Any other exception that reaches the command line is a bug in camu.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CamuError(Exception):
    """The work failed. The message is one clear sentence (exit code 1)."""

    exit_code = 1


class InputError(CamuError):
    """Wrong use or bad input: names the file, the key and the fix (exit code 2)."""

    exit_code = 2


class UserCodeError(CamuError):
    """The user's own code raised: names the file, the line, the function and the error."""


def suggest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """The hint "; did you mean `x`?" for the known word closest to a typo; "" if none is close.

    `prefix` goes before the known word, for example "radio.".
    """
    names = list(known)
    same = [name for name in names if name.casefold() == word.casefold()]
    close = same or difflib.get_close_matches(word, names, n=1)
    return f"; did you mean `{prefix}{close[0]}`?" if close else ""
