"""The entries of a message: all that is in its arrays, and in the arrays of what is in them.

A message with very many of them takes long to free, in one go. Whoever holds a list of its entries
can let go of the message first, and then of the entries in steps.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dohle.core.steps import PlainSteps
from dohle.protocol.schema import Struct, StructMeta

#: Shorter arrays are not looked for among those that were seen before.
_LONG = 16


def entries_of(message: Struct) -> PlainSteps[list[Any]]:
    """Return the entries, in no order that means anything."""
    found: list[Any] = []
    seen: set[int] = set()
    structs = [message]
    while structs:
        struct = structs.pop()
        for name, may_hold_more in _arrays_of(type(struct)):
            # A message that was not decoded to its end lacks some.
            entries = getattr(struct, name, None)
            if entries:
                if len(entries) > _LONG:
                    # Many may hold the very same array: its entries are freed once.
                    if id(entries) in seen:
                        continue
                    seen.add(id(entries))
                found.extend(entries)
                if may_hold_more:
                    structs.extend(entries)
        yield
    return found


@cache
def _arrays_of(kind: StructMeta) -> tuple[tuple[str, bool], ...]:
    """Return the names of a struct's arrays, and whether what is in them may have arrays too."""
    return tuple(
        (name, isinstance(field.element, StructMeta) and bool(_arrays_of(field.element)))
        for name, field in kind.FIELDS.items()
        if field.kind == "array"
    )
