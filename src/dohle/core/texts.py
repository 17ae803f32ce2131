"""Texts from clients inside texts of ours: shortened, and without what could pass for ours.

A name from a request may have 32 KB, and hold line ends, escape sequences and half characters.
"""

from __future__ import annotations


def shorten(text: str, characters_max: int) -> str:
    """Return the text, or its beginning and its end with a note of how much is left out."""
    left_out = len(text) - characters_max
    if left_out <= 0:
        return text
    start = (characters_max + 1) // 2
    end = len(text) - characters_max // 2
    return f"{text[:start]}...({left_out} more characters)...{text[end:]}"


def printable(text: str) -> str:
    r"""Return the text with everything that is not printed as ``\n``, ``\x1b``, ``\u2028``.

    Line ends, escape sequences, directions of writing and lone surrogates are among that.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def encodable(text: str) -> str:
    r"""Return the text with lone surrogates, which UTF-8 does not have, as ``\udc80``."""
    return text.encode(errors="backslashreplace").decode()
