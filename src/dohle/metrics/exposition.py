"""Prometheus' text format, version 0.0.4: families of samples, one sample a line.

Lines are made by generators, so that whoever sends them can stop after any of them and let others
have their turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "summary"]
Number = int | float

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels(pairs: Mapping[str, object]) -> str:
    """Return labels as they stand behind a name; nothing if there are none."""
    if not pairs:
        return ""
    shown = [f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in pairs.items()]
    return f"{{{','.join(shown)}}}"


def family(name: str, kind: Kind, doc: str, samples: Iterable[tuple[str, Number]]) -> Iterator[str]:
    """Write the samples of one name, each a pair of ``labels`` and a value; none, no family."""
    head: str | None = f"# HELP {name} {doc}\n# TYPE {name} {kind}\n"
    for labelled, value in samples:
        if head is not None:
            yield head
            head = None
        yield f"{name}{labelled} {value}\n"


def single(name: str, kind: Kind, doc: str, value: Number | None) -> Iterator[str]:
    """Write a family of one sample without labels; None, and it is left out."""
    return family(name, kind, doc, () if value is None else (("", value),))
