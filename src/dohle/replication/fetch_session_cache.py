"""The fetch sessions of a node, and how many there may be: see ``fetch_sessions``.

There are a limited number of slots. Followers take them from consumers; larger sessions from
smaller ones that have existed for a while; everyone from those that have long been silent.

Partitions are limited too, over all sessions, which Kafka does not do: one takes a few bytes in a
request, and hundreds here. To make room the sessions go that have long been silent, then those
of consumers that have more partitions than the one which needs room. Where that is not enough there
is no session: the fetcher names all its partitions each time, and gets the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from dohle.core.errors import ErrorCode
from dohle.core.seams import Rng
from dohle.core.steps import Steps
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest
from dohle.replication.fetch_sessions import (
    INT32_MAX,
    NO_SESSION_ID,
    TOPIC_ID_VERSION_MIN,
    FetchContext,
    FetchSession,
    FullFetchContext,
    IncrementalFetchContext,
    Key,
    Result,
    SessionPartition,
    TopicNameOf,
    is_from_follower,
    next_epoch,
    note_told,
    refused,
    requested_partitions,
    session_key,
)
from dohle.replication.settled import PARTITIONS_PER_STEP, Unsettled, Watches

INITIAL_EPOCH = 0
FINAL_EPOCH = -1

#: How many partitions all sessions may have together: they take about 20 MB.
PARTITIONS_MAX = 50_000


class FetchSessionCache:
    """The sessions of a node."""

    def __init__(
        self,
        slots: int = 1000,
        *,
        rng: Rng,
        eviction_ms: int = 120_000,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        """``eviction_ms`` is how long a session must be unused, or exist, to be evicted."""
        self._slots = slots
        self._partitions_max = partitions_max
        self._eviction_ms = eviction_ms
        self._rng = rng
        #: By id, the longest unused first.
        self._sessions: dict[int, FetchSession] = {}
        # The keys of sessions that may be evicted, the least valuable first. A key that is no
        # longer its session's stays until it comes up or there are too many of them.
        self._for_followers: list[tuple[bool, int, int]] = []
        self._for_all: list[tuple[bool, int, int]] = []
        #: How many partitions are in all sessions.
        self.partition_count = 0
        # And how many are being added.
        self._growth = 0
        #: How many sessions had to make room for another.
        self.evictions = 0
        #: The sessions of followers that are told of what happens to partitions.
        self.watches = Watches()

    @property
    def session_count(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    def size_of(self, session_id: int) -> int:
        """Return how many partitions a session has, 0 if there is none."""
        session = self._sessions.get(session_id)
        return 0 if session is None else session.size

    def look_at_all(self) -> None:
        """Have followers' sessions look at all partitions: brokers have changed."""
        for session in self._sessions.values():
            if session.unsettled is not None:
                session.unsettled.look_at_all()

    def open_unchanged(
        self, request: FetchRequest, version: int, now_ms: int
    ) -> FetchContext | None:
        """Do as ``open`` does if the request only repeats what its session has; else None."""
        session = self._sessions.get(request.session_id)
        if (
            session is None
            or session.epoch != request.session_epoch
            or not session.partitions
            or request.topics
            or session.unresolved
            or request.forgotten_topics_data
            or session.uses_topic_ids is not (version >= TOPIC_ID_VERSION_MIN)
            or session.is_to_look_at_all(request, now_ms)
        ):
            return None
        session.epoch = next_epoch(session.epoch)
        self._touch(session, now_ms)
        return IncrementalFetchContext(session, now_ms)

    def followed(
        self, session_id: int, epoch: int, broker_epoch: int, now_ms: int
    ) -> FetchSession | None:
        """Return a follower's session by topic ids, if a request of this epoch is its next one.

        None also if the request has to look at all partitions, or up ids that were not known.
        """
        session = self._sessions.get(session_id)
        if (
            session is None
            or session.epoch != epoch
            or session.unsettled is None
            or session.unresolved
            or not session.uses_topic_ids
            or session.unsettled.is_to_look_at_all(now_ms, broker_epoch)
        ):
            return None
        return session

    def go_on(
        self,
        session: FetchSession,
        moved: Sequence[tuple[SessionPartition, FetchPartition]],
        now_ms: int,
    ) -> IncrementalFetchContext:
        """Do as ``open`` does with the next request of a follower's session.

        It asks for something else of some partitions that it has, in the same leader epochs.
        """
        unsettled = session.unsettled
        assert unsettled is not None
        session.epoch = next_epoch(session.epoch)
        for part, asked in moved:
            part.request = asked
            unsettled.add(part)
        self._touch(session, now_ms)
        return IncrementalFetchContext(session, now_ms)

    def open(
        self, request: FetchRequest, version: int, topic_name: TopicNameOf, now_ms: int
    ) -> Steps[FetchContext]:
        """Begin the handling of a fetch request."""
        uses_topic_ids = version >= TOPIC_ID_VERSION_MIN
        requested: list[SessionPartition] = []
        if request.topics:
            requested = yield from requested_partitions(request, uses_topic_ids, topic_name)
        session = self._sessions.get(request.session_id)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._remove(session)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(requested)
            return FullFetchContext(
                self,
                requested,
                is_follower=is_from_follower(request, version),
                uses_topic_ids=uses_topic_ids,
            )
        if session is None:
            return refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return (yield from self._advance(session, request, requested, topic_name, now_ms))

    def _advance(
        self,
        session: FetchSession,
        request: FetchRequest,
        requested: list[SessionPartition],
        topic_name: TopicNameOf,
        now_ms: int,
    ) -> Steps[FetchContext]:
        """Apply the changes that an incremental request makes to its session.

        While that takes its time, whoever repeats the request is told that its epoch is past.
        """
        session.last_used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        growth = yield from session.count_new(requested)
        if self._sessions.get(session.id) is not session:
            return refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not self._make_room(growth, session.size + growth, session.is_privileged, now_ms):
            self._remove(session)
            return refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._growth += growth
        try:
            yield from session.look_up_again(topic_name)
            yield from session.add(requested)
            yield from session.forget(request)
            if session.is_to_look_at_all(request, now_ms):
                yield from session.look_at_all(request, now_ms)
        finally:
            # Also if nobody waits for it any more: what it has got by now counts.
            self._growth -= growth
            is_alive = self._sessions.get(session.id) is session
            if is_alive and session.partitions:
                self._touch(session, now_ms)
            elif is_alive:
                self._remove(session)
        if not is_alive:
            return refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            return FetchContext(requested)
        return IncrementalFetchContext(session, now_ms)

    def try_create(
        self, results: list[Result], now_ms: int, *, is_follower: bool, uses_topic_ids: bool
    ) -> Steps[int]:
        """Make a session of a full fetch's partitions; return its id, or 0 if there is no room."""
        partitions: dict[Key, SessionPartition] = {}
        unresolved: dict[Key, SessionPartition] = {}
        size = len(results)
        if size > self._partitions_max:
            return NO_SESSION_ID
        for number, (partition, data) in enumerate(results, 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
            note_told(partition, data)
            key = session_key(partition, uses_topic_ids)
            partitions[key] = partition
            if partition.topic is None:
                unresolved[key] = partition
        if len(self._sessions) >= self._slots and not self._evict(
            (is_follower, size, NO_SESSION_ID), now_ms
        ):
            return NO_SESSION_ID
        if not self._make_room(size, size, is_follower, now_ms):
            return NO_SESSION_ID
        session = FetchSession(
            id=self._new_id(),
            is_privileged=is_follower,
            uses_topic_ids=uses_topic_ids,
            partitions=partitions,
            created_ms=now_ms,
            last_used_ms=now_ms,
            epoch=next_epoch(INITIAL_EPOCH),
            unresolved=unresolved,
        )
        self._sessions[session.id] = session
        self._touch(session, now_ms)
        if is_follower:
            unsettled = session.unsettled = Unsettled(self.watches)
            for number, partition in enumerate(list(partitions.values()), 1):
                if not number % PARTITIONS_PER_STEP:
                    yield None
                unsettled.watch(partition)
        return session.id

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randrange(1, INT32_MAX)
            if session_id not in self._sessions:
                return session_id

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        """Note that a session is in use, and from when on others may take its slot.

        That is: a consumer's by followers at once, and any by any once it is old enough.
        """
        self._sessions[session.id] = self._sessions.pop(session.id)
        session.last_used_ms = now_ms
        size = len(session.partitions)
        if size != session.size:
            self.partition_count += size - session.size
            session.size = size
            # Its keys are no longer its own: let it be listed again.
            session.evictable_by_all = session.evictable_by_followers = False
        if session.evictable_by_all:
            return
        if now_ms - session.created_ms > self._eviction_ms:
            session.evictable_by_all = True
            heappush(self._for_all, session.eviction_key)
        elif session.is_privileged or session.evictable_by_followers:
            return
        if not session.evictable_by_followers:
            session.evictable_by_followers = True
            heappush(self._for_followers, session.eviction_key)
        self._drop_stale_keys()

    def _drop_stale_keys(self) -> None:
        bound = 2 * len(self._sessions) + 64
        for keys in (self._for_all, self._for_followers):
            if len(keys) > bound:
                keys[:] = {key for key in keys if self._owner_of(key) is not None}
                heapify(keys)

    def _owner_of(self, key: tuple[bool, int, int]) -> FetchSession | None:
        session = self._sessions.get(key[2])
        return session if session is not None and session.eviction_key == key else None

    def _evict(self, key: tuple[bool, int, int], now_ms: int) -> bool:
        """Make room for a session with this key, if there is one worth less."""
        victim = next(iter(self._sessions.values()), None)
        if victim is None:
            return False
        if now_ms - victim.last_used_ms <= self._eviction_ms:
            keys = self._for_followers if key[0] else self._for_all
            while keys and self._owner_of(keys[0]) is None:
                heappop(keys)
            if not keys or key < keys[0]:
                return False
            victim = self._sessions[keys[0][2]]
        self._remove(victim)
        self.evictions += 1
        return True

    def _make_room(self, growth: int, size: int, is_privileged: bool, now_ms: int) -> bool:
        """Make room for so many more partitions of a session that will have ``size`` of them."""
        missing = self.partition_count + self._growth + growth - self._partitions_max
        if missing <= 0:
            return True
        silent: list[FetchSession] = []
        larger: list[FetchSession] = []
        for session in self._sessions.values():
            if now_ms - session.last_used_ms > self._eviction_ms:
                silent.append(session)
            elif not session.is_privileged and (is_privileged or session.size > size):
                larger.append(session)
        larger.sort(key=lambda session: session.size, reverse=True)
        victims: list[FetchSession] = []
        for session in (*silent, *larger):
            victims.append(session)
            missing -= session.size
            if missing <= 0:
                break
        else:
            return False
        for session in victims:
            self._remove(session)
        self.evictions += len(victims)
        return True

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self.partition_count -= session.size
        if session.unsettled is not None:
            # A request that is being handled may still look at what the session had.
            session.unsettled.close(session.partitions)
            session.partitions = {}
