"""A member of a group, to be run as a process and killed at any time.

``python -m tests.interop.group_worker JOINING``, with what ``Joining`` holds as JSON. It tells line
by line, as JSON too, what it was given, what was taken from it, and what it has seen. SIGTERM makes
it leave the group.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from tests.interop.group_consumers import Joining, Place, joined


def tell(what: str, values: Any) -> None:
    """Say it at once."""
    sys.stdout.write(json.dumps({what: values}) + "\n")
    sys.stdout.flush()


class Teller:
    """Tells which partitions come and go."""

    def on_assigned(self, places: set[Place]) -> None:
        tell("given", sorted(places))

    def on_revoked(self, places: set[Place]) -> None:
        tell("taken", sorted(places))

    def on_lost(self, places: set[Place]) -> None:
        tell("taken", sorted(places))


def main() -> None:
    """Take part until told to end."""
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    options = json.loads(sys.argv[1])
    consumer = joined(Joining(**{**options, "topics": tuple(options["topics"])}), Teller())
    while not ending.is_set():
        found = consumer.poll()
        if found:
            tell("seen", [[*seen.place, seen.offset, seen.value.decode()] for seen in found])
    consumer.close()


if __name__ == "__main__":
    main()
