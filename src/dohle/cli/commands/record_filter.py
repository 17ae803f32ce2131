"""Which records ``dohle consume`` prints: by patterns in keys and values, and by JSON fields."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dohle.client import ConsumedRecord

Wanted = Callable[["ConsumedRecord"], bool]


def pattern(text: str) -> re.Pattern[bytes]:
    """Parse ``--grep``: a regular expression on bytes."""
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as error:
        message = f"{text!r} is not a regular expression: {error}"
        raise argparse.ArgumentTypeError(message) from None


def condition(text: str) -> tuple[tuple[str, ...], str]:
    """Parse ``--where``: PATH=VALUE, with dots in the path."""
    path, equals, value = text.partition("=")
    if not equals or not all(path.split(".")):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form field=value or a.b=value")
    return tuple(path.split(".")), value


def record_filter(
    patterns: Sequence[re.Pattern[bytes]], conditions: Sequence[tuple[tuple[str, ...], str]]
) -> Wanted | None:
    """Return what tells whether a record is wanted: all must hold. None if all records are."""
    if not patterns and not conditions:
        return None
    import json  # not above: whoever builds the parser loads this module

    def is_wanted(item: ConsumedRecord) -> bool:
        key, value = item.record.key or b"", item.record.value or b""
        if not all(each.search(key) or each.search(value) for each in patterns):
            return False
        if not conditions:
            return True
        try:
            content = json.loads(value)
        except ValueError:
            return False
        return all(_text(content, path) == wanted for path, wanted in conditions)

    return is_wanted


def _text(content: object, path: Sequence[str]) -> str | None:
    """Return a field's text: a string as it is, anything else as JSON; None if it is missing."""
    import json

    for name in path:
        if isinstance(content, dict) and name in content:
            content = content[name]
        elif isinstance(content, list) and name.isdigit() and int(name) < len(content):
            content = content[int(name)]
        else:
            return None
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
