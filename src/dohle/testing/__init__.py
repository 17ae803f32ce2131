"""For tests, ours and yours: a broker in the process, and a disk that fails on command.

``Broker`` is loaded when it is asked for, so that the simulated disk comes without the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dohle.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from dohle.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__} has no attribute {name}")
