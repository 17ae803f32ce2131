"""Taming the garbage collector: a full collection looks at every object, in one go.

- Long work makes hundreds of thousands of objects. While it is under way there are no full
  collections; what it has made is free when it is done, as it has no cycles.
- What a broker keeps (partitions, their logs, the image) is as many objects, and lives long. In a
  process of its own it is frozen when it is there: no collection looks at it again. It is freed
  like everything else when nobody holds it any more, for it has no cycles either; what has some
  is never freed once it is frozen.

In a process that is somebody else's (``Broker()`` in a test) nothing is frozen: objects of others
are not ours to freeze.
"""

from __future__ import annotations

import gc

# A threshold of the collector that is never reached.
_NEVER = 1 << 30


class Collector:
    """The garbage collector, which all loops of a process share."""

    def __init__(self) -> None:
        self._holders = 0
        self._thresholds = gc.get_threshold()
        self._may_freeze = False

    @property
    def is_held(self) -> bool:
        """Tell whether full collections are held up."""
        return self._holders > 0

    def hold(self) -> None:
        """Hold up full collections."""
        if not self.is_held:
            self._thresholds = young, middle, _ = gc.get_threshold()
            gc.set_threshold(young, middle, _NEVER)
        self._holders += 1

    def release(self) -> None:
        """Allow full collections again, unless others hold them up."""
        self._holders -= 1
        if not self.is_held:
            gc.set_threshold(*self._thresholds)

    def own_process(self) -> None:
        """Take note that the process is a broker's alone, and that the broker has started."""
        self._may_freeze = True
        gc.collect()
        gc.freeze()

    def grown(self) -> None:
        """Take note that there is much that will live long; to freeze it takes no time."""
        if self._may_freeze:
            # Garbage is mostly young.
            gc.collect(0)
            gc.freeze()


#: That of this process.
COLLECTOR = Collector()
