"""Who somebody is, as Kafka writes it: a type and a name (``User:alice``)."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """Who somebody is."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


#: Whoever comes by a listener where nobody has to say who they are.
ANONYMOUS = Principal(USER, "ANONYMOUS")
