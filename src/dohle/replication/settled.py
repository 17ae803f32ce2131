"""What of a follower's session need not be looked at with each of its fetches.

A follower has all partitions of one leader in a session, mostly many, of which few have news at a
time. A partition is settled when the follower has all of it, all of it is committed, and the
follower has been told so: then another fetch changes nothing but the time at which it was last
caught up. That time is one for all settled partitions of a session, its pulse. Whatever happens to
a partition unsettles it in the sessions that have it, and a fetch looks at the unsettled ones
alone. A session that has no fetch waiting is told of a partition once, until it has looked.

Every few seconds a fetch looks at all of them, as Kafka's do each time: a change that
nobody told of is noticed by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dohle.core.ids import TopicPartition
from dohle.core.steps import Steps
from dohle.replication.partition import Follower, Pulse

if TYPE_CHECKING:
    from dohle.replication.fetch_sessions import SessionPartition

#: How many partitions are dealt with in one step.
PARTITIONS_PER_STEP = 64
#: How often all partitions of a session are looked at.
LOOK_AT_ALL_MS = 5_000
#: How many partitions of closed sessions are let go of with each that is added.
_LET_GO_AT_ONCE = 2


class Watches:
    """The sessions that have a partition, for all partitions of a leader."""

    def __init__(self) -> None:
        self._by_key: dict[TopicPartition, dict[SessionPartition, Unsettled]] = {}
        #: The partitions of sessions that are closed. To let go of very many at once takes long.
        self._closed: deque[dict[Any, SessionPartition]] = deque()

    def changed(self, key: TopicPartition) -> None:
        """Have a partition looked at by the sessions that have it, and now if one waits."""
        watching = self._by_key.get(key)
        if watching is not None:
            for part, unsettled in list(watching.items()):
                unsettled.add(part)
                if unsettled.waiting is not None:
                    unsettled.waiting(part)
                else:
                    # The next fetch looks at it in any case. If its follower has vanished, there
                    # may never be one: such sessions stay for long, and are told once.
                    self._remove(key, part)
                    unsettled.is_told(part)

    def add(self, part: SessionPartition, unsettled: Unsettled) -> None:
        """Tell a session of what happens to one of its partitions."""
        self._let_go()
        key = _key(part)
        if key is not None:
            self._by_key.setdefault(key, {})[part] = unsettled

    def remove(self, part: SessionPartition) -> None:
        """Tell nobody any more."""
        key = _key(part)
        if key is not None:
            self._remove(key, part)

    def _remove(self, key: TopicPartition, part: SessionPartition) -> None:
        watching = self._by_key.get(key)
        if watching is not None:
            watching.pop(part, None)
            if not watching:
                del self._by_key[key]

    def close(self, partitions: dict[Any, SessionPartition]) -> None:
        """Let go of a session's partitions by and by; nobody else may use the dictionary."""
        self._closed.append(partitions)

    def _let_go(self) -> None:
        for _ in range(_LET_GO_AT_ONCE):
            if not self._closed:
                return
            if self._closed[0]:
                self.remove(self._closed[0].popitem()[1])
            else:
                self._closed.popleft()

    @property
    def count(self) -> int:
        """How many partitions of sessions are told of what happens."""
        return sum(map(len, self._by_key.values()))


def _key(part: SessionPartition) -> TopicPartition | None:
    return None if part.topic is None else TopicPartition(part.topic, part.partition)


class Unsettled:
    """The partitions of a follower's session that its next fetch looks at, in their order."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._parts: dict[SessionPartition, None] = {}
        #: Those among them that are not watched: the session is not told what happens to them.
        self._told: dict[SessionPartition, None] = {}
        self._looked_at_all_ms: int | None = None
        self._broker_epoch: int | None = None
        #: How often somebody has asked to have all looked at.
        self._asked = 0
        #: When the session fetched last.
        self.pulse = Pulse()
        self.is_closed = False
        #: Called with what happens to a partition while a fetch of the session waits: see ``wait``.
        self.waiting: Callable[[SessionPartition], None] | None = None

    def __iter__(self) -> Iterator[SessionPartition]:
        return iter(self._parts)

    def is_to_look_at_all(self, now_ms: int, broker_epoch: int) -> bool:
        """Tell whether the next fetch of the session, if it comes now, looks at all partitions."""
        last = self._looked_at_all_ms
        is_due = last is None or now_ms - last >= LOOK_AT_ALL_MS
        return is_due or broker_epoch != self._broker_epoch

    def add_all(
        self, partitions: Mapping[Any, SessionPartition], now_ms: int, broker_epoch: int
    ) -> Steps[None]:
        """Have the next fetch look at all partitions of the session, which has these.

        There may be very many. What the session forgets meanwhile is left out.
        """
        asked = self._asked
        for number, key in enumerate(list(partitions), 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
            part = partitions.get(key)
            if part is not None:
                self.add(part)
        if asked == self._asked:
            self._looked_at_all_ms, self._broker_epoch = now_ms, broker_epoch

    def fetched(self, now_ms: int) -> list[SessionPartition]:
        """Take in the next fetch of the session, and return what it looks at, in this order."""
        self.pulse.ms = now_ms
        return list(self._parts)

    def look_at_all(self) -> None:
        """Have the next fetch look at all partitions of the session."""
        self._looked_at_all_ms = None
        self._asked += 1

    def wait(self, look: Callable[[SessionPartition], None]) -> None:
        """Have ``look`` called with what happens to any partition from now on."""
        self.waiting = look
        told, self._told = self._told, {}
        for part in told:
            self._watch_again(part)

    def is_told(self, part: SessionPartition) -> None:
        """Take in that one to look at is not watched until it is settled, or a fetch waits."""
        self._told[part] = None

    def _watch_again(self, part: SessionPartition) -> None:
        if not self.is_closed:
            self._watches.add(part, self)

    def watch(self, part: SessionPartition) -> None:
        """Take in a new partition, or one whose topic is known now."""
        self._watch_again(part)
        self.add(part)

    def forget(self, part: SessionPartition) -> None:
        """Take in that the session does not have a partition any more."""
        self._watches.remove(part)
        self._told.pop(part, None)
        self.add(part)
        del self._parts[part]

    def close(self, partitions: dict[Any, SessionPartition]) -> None:
        """Take in that the session ends, which has these partitions."""
        self.is_closed = True
        self._watches.close(partitions)

    def add(self, part: SessionPartition) -> None:
        """Have a partition looked at by the next fetch."""
        if part not in self._parts:
            self._parts[part] = None
            if part.follower is not None:
                part.follower.unsettle()
                part.follower = None

    def settle(self, part: SessionPartition, follower: Follower) -> None:
        """Leave a partition out until something happens to it."""
        if part in self._parts:
            del self._parts[part]
            if part in self._told:
                del self._told[part]
                self._watch_again(part)
            part.follower = follower
            follower.settle(self.pulse)

    def put_last(self, part: SessionPartition) -> None:
        """Read a partition after the others."""
        if part in self._parts:
            del self._parts[part]
            self._parts[part] = None
