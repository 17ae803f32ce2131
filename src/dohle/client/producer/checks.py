"""What a record is sent with, checked where it is handed in: a slip is told to who has made it.

Later it would be met while a batch is built, by whoever sends that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dohle.records.record import Header

#: As they are named by users: a dict has no order of equal names, but most need none.
Headers = Sequence[Header] | Mapping[str, bytes | None]


def check_record(topic: Any, partition: Any, timestamp: Any, headers: Headers) -> Sequence[Header]:
    """Raise a TypeError that says which part is wrong; return the headers as pairs."""
    if not isinstance(topic, str):
        raise TypeError(f"topic is {topic!r}: it must be a string")
    for name, number in (("partition", partition), ("timestamp", timestamp)):
        if number is not None and not hasattr(number, "__index__"):
            unit = " (milliseconds since 1970)" if name == "timestamp" else ""
            raise TypeError(f"{name} is {number!r}: it must be a whole number{unit}")
    return _pairs(headers) if headers else ()


def _pairs(headers: Any) -> Sequence[Header]:
    given = headers.items() if isinstance(headers, Mapping) else headers
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise TypeError(f"headers is {headers!r}: {_WANTED}")
    found = []
    for each in given:
        if not (isinstance(each, tuple | list) and len(each) == 2 and isinstance(each[0], str)):
            raise TypeError(f"headers has {each!r}: {_WANTED}")
        name, value = each
        if not (value is None or isinstance(value, bytes)):
            if not isinstance(value, bytearray | memoryview):
                raise TypeError(f"the header {name} is a {type(value).__name__}: pass bytes")
            value = bytes(value)
        found.append((name, value))
    return found


_WANTED = 'it must be a dict, or a list of pairs, of names and bytes: [("trace", b"17")]'
