"""Finding the error codes in a response, wherever its kind has them: what Kafka counts as errors.

As with encoding, a function is written for each kind on first use, since large responses have one
code for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from dohle.protocol.codec.compiler import SourceText
from dohle.protocol.schema import Response, Struct, StructMeta

_FIELD = "error_code"


@cache
def error_codes_of(kind: type[Response]) -> Callable[[Response], Iterator[int]]:
    """Return a function that tells all error codes of a response, 0 (no error) included."""
    source = SourceText()
    source.open("def error_codes(message):")
    _write(source, kind, "message")
    source.line("yield from ()")
    return source.compile("error_codes", kind.__name__)


def _write(source: SourceText, struct: type[Struct], name: str) -> None:
    for field_name, field in struct.FIELDS.items():
        if field_name == _FIELD:
            source.line(f"yield {name}.{_FIELD}")
        elif isinstance(field.element, StructMeta) and _has_codes(field.element):
            part = source.fresh("part")
            if field.kind == "array":
                source.open(f"for {part} in {name}.{field_name} or ():")
            else:
                source.line(f"{part} = {name}.{field_name}")
                source.open(f"if {part} is not None:")
            _write(source, field.element, part)
            source.close()


def _has_codes(struct: StructMeta) -> bool:
    return _FIELD in struct.FIELDS or any(
        isinstance(field.element, StructMeta) and _has_codes(field.element)
        for field in struct.FIELDS.values()
    )
