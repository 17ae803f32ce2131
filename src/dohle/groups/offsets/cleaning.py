"""Deletes offsets that nobody needs: expired ones, and those of topics that were deleted.

A shard may have hundreds of thousands of offsets. They are looked at in parts, a few hundred each
time that the cleaner's timer is due, and the world may change between two parts: whether an offset
is to go is decided in the part that deletes it.

- Offsets expire some time after the group lost its last member; in a group that never had any, and
  for a topic that no member subscribes to any more, after the commit (``expiry``).
- A group without members and without offsets is deleted.
- Of a deleted topic, what was committed before it was deleted goes: there may be a new topic of the
  same name, whose offsets stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Set

from dohle.coordination.effects import Effects
from dohle.groups.context import GroupContext, GroupTimerKey
from dohle.groups.offsets.expiry import ExpiryRule
from dohle.groups.offsets.records import offset_tombstone
from dohle.groups.offsets.store import CommittedOffset, OffsetStore
from dohle.protocol.record_framing import CoordinatorRecord

_EXPIRY_TIMER = GroupTimerKey("offsets", "expiry")
_NEXT_PART = GroupTimerKey("offsets", "cleaning")

#: About how many offsets or groups are looked at in one part.
_PART = 500
#: How many offsets of a topic at once.
_AT_ONCE = 100

#: Yields after each look how many offsets it was about; what is to be written is noted elsewhere.
_Looks = Iterator[int]


class OffsetCleaner:
    """The cleaner of a shard."""

    __slots__ = ("_context", "_deleted", "_going", "_records", "_round", "_store")

    def __init__(self, context: GroupContext, store: OffsetStore) -> None:
        self._context = context
        self._store = store
        # The search for expired offsets, if one is under way.
        self._round: _Looks | None = None
        # The offsets of deleted topics as they were then, by group and topic.
        self._deleted: deque[tuple[str, str, dict[int, CommittedOffset]]] = deque()
        # What the part under way deletes: the records, and the offsets among them.
        self._records: list[CoordinatorRecord] = []
        self._going: set[tuple[str, str, int]] = set()

    def start(self) -> None:
        """Look for expired offsets from now on, at intervals."""
        interval_ms = self._context.settings().offsets_retention_check_interval_ms
        self._set_timer(_EXPIRY_TIMER, interval_ms)

    def on_topics_deleted(self, names: Set[str]) -> Effects:
        """Have the offsets of deleted topics deleted; at once where a transaction has some."""
        if not names:
            return Effects()
        for group_id, topic, partitions in self._store.of_topics(names):
            self._deleted.append((group_id, topic, partitions.copy()))
        if self._deleted:
            self._set_timer(_NEXT_PART, 0)
        records = [offset_tombstone(*key) for key in self._store.pending_of_topics(names)]
        return Effects(records, is_atomic=False)

    def on_timer(self, key: GroupTimerKey) -> Effects:
        """Do a part."""
        if key == _EXPIRY_TIMER:
            self.start()
            if self._round is None:
                self._round = self._expire()
        self._records, self._going = [], set()
        self._do_part()
        if self._deleted or self._round is not None:
            self._set_timer(_NEXT_PART, 0)
        return Effects(self._records, is_atomic=False)

    def _set_timer(self, key: GroupTimerKey, after_ms: int) -> None:
        self._context.timers.set(key, self._context.clock.monotonic_ms() + after_ms)

    def _do_part(self) -> None:
        seen = 0
        while self._deleted:
            seen += self._forget_some(*self._deleted.popleft(), _PART - seen)
            if seen >= _PART:
                return
        if self._round is None:
            return
        for count in self._round:
            seen += count
            if seen >= _PART:
                return
        self._round = None

    # Deleted topics

    def _forget_some(
        self, group_id: str, topic: str, deleted: dict[int, CommittedOffset], count_max: int
    ) -> int:
        """Delete some offsets of a topic, if they are still the same; keep the rest for later."""
        current = (self._store.of_group(group_id) or {}).get(topic, {})
        seen = 0
        while deleted and seen < count_max:
            partition, offset = deleted.popitem()
            seen += 1
            if current.get(partition) is offset:
                self._remove(group_id, topic, partition)
        if deleted:
            self._deleted.appendleft((group_id, topic, deleted))
        return seen

    # Expiry

    def _expire(self) -> _Looks:
        for group_id in tuple(self._context.groups):
            yield 1
            topics = self._store.of_group(group_id) or {}
            for topic in tuple(topics):
                indexes = tuple(topics.get(topic, ()))
                for start in range(0, len(indexes), _AT_ONCE):
                    some = indexes[start : start + _AT_ONCE]
                    self._expire_some(group_id, topic, some)
                    yield len(some)
            self._delete_if_unused(group_id)

    def _expire_some(self, group_id: str, topic: str, indexes: tuple[int, ...]) -> None:
        group = self._context.groups.get(group_id)
        if group is None or group.is_subscribed_to(topic):
            return
        settings = self._context.settings()
        retention_ms = settings.offsets_retention_minutes * 60_000
        rule = ExpiryRule.of(group, self._context.clock.now_ms(), retention_ms)
        if rule is None:
            return
        offsets = (self._store.of_group(group_id) or {}).get(topic, {})
        pending = self._store.pending_of_group(group_id).get(topic, ())
        for partition in indexes:
            offset = offsets.get(partition)
            if offset is not None and rule.has_expired(offset) and partition not in pending:
                self._remove(group_id, topic, partition)

    def _delete_if_unused(self, group_id: str) -> None:
        """Delete a group without members, if it has no offsets but those that go in this part."""
        group = self._context.groups.get(group_id)
        if group is None or not group.is_empty or self._store.pending_of_group(group_id):
            return
        if all(
            (group_id, topic, partition) in self._going
            for topic, partitions in (self._store.of_group(group_id) or {}).items()
            for partition in partitions
        ):
            self._records += group.tombstones()

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        self._records.append(offset_tombstone(group_id, topic, partition))
        self._going.add((group_id, topic, partition))
