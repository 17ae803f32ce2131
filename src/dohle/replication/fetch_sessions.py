"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, then only changes.

A full fetch (epoch 0) may get a session, whose partitions and what was last told about each are
kept here. In a session a request holds only partitions that are new, changed or forgotten, and the
answer only those with something to tell: records, an error, a moved high watermark or log start, a
preferred replica, a diverging epoch. A partition that was answered with records goes to the end of
the reading order, so that the first do not starve the rest.

Epochs count the requests of a session, so that a lost or repeated one is noticed. From version 13
on topics are named by id, and a session does not change between ids and names; an id that is not
known stays in the session and is looked up again with each request.

There are a limited number of slots. Followers take them from consumers; larger sessions from
smaller ones that have existed for a while; everyone from those that have long been silent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, Uuid
from dohle.core.seams import Rng
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    PartitionData,
)

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
TOPIC_ID_VERSION_MIN = 13

_INT32_MAX = 2**31 - 1
_REPLICA_STATE_VERSION_MIN = 15
_NOT_SENT = -1

#: Tells the name of a topic id, if there is such a topic.
TopicNameOf = Callable[[Uuid], TopicName | None]
#: A topic's id, or its name in sessions that use names; with it the partition.
_Key = tuple[Uuid | TopicName, int]


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after this one: 1 follows the largest."""
    return 1 if epoch == _INT32_MAX else epoch + 1


class SessionPartition:
    """A partition that a fetch asks for, with what the fetcher was last told about it."""

    __slots__ = (
        "high_watermark",
        "local",
        "log_start_offset",
        "partition",
        "request",
        "topic",
        "topic_id",
    )

    def __init__(
        self, topic: TopicName | None, topic_id: Uuid, partition: int, request: FetchPartition
    ) -> None:
        #: ``None`` if no topic has the id.
        self.topic = topic
        #: The zero uuid if the fetcher uses names.
        self.topic_id = topic_id
        self.partition = partition
        #: What is asked for, as in the last request that named the partition.
        self.request = request
        self.high_watermark = _NOT_SENT
        self.log_start_offset = _NOT_SENT
        #: What the broker has it as, for the broker to remember.
        self.local: Any = None

    def __repr__(self) -> str:
        return (
            f"SessionPartition({self.topic}-{self.partition}, "
            f"fetch_offset={self.request.fetch_offset})"
        )


#: What was found for a partition.
Result = tuple[SessionPartition, PartitionData]
#: Tells the bytes of records in a result; they may be a slice of a file.
SizeOf = Callable[[PartitionData], int]


@dataclass(frozen=True, slots=True)
class FetchReply:
    """What goes into the response."""

    error: ErrorCode
    session_id: int
    results: list[Result]


@dataclass(slots=True, eq=False)
class FetchSession:
    """One fetcher's partitions. Changed only through the cache."""

    id: int
    is_privileged: bool
    uses_topic_ids: bool
    partitions: dict[_Key, SessionPartition]
    created_ms: int
    last_used_ms: int
    epoch: int
    #: Those whose topic id was not known when last looked up.
    unresolved: dict[_Key, SessionPartition]
    #: How many partitions there were when it was last used.
    size: int = 0
    #: Who may take its slot: see :meth:`FetchSessionCache._touch`.
    evictable_by_followers: bool = False
    evictable_by_all: bool = False

    @property
    def eviction_key(self) -> tuple[bool, int, int]:
        """What is worth less comes first."""
        return (self.is_privileged, self.size, self.id)


class FetchContext:
    """One fetch request: what to read, and how to answer.

    A request that is refused for its session has an ``error`` and nothing to read.
    """

    __slots__ = ("error", "partitions")

    error: ErrorCode
    #: In the order in which they are to be read. Valid until the session's next request.
    partitions: Collection[SessionPartition]

    def __init__(
        self,
        partitions: Collection[SessionPartition] = (),
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.partitions = partitions
        self.error = error

    def may_omit(
        self, partition: SessionPartition, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Tell whether a partition with nothing else to tell can be left out of the results."""
        return False

    def finish(
        self, results: Iterable[Result], now_ms: int, size_of: SizeOf | None = None
    ) -> FetchReply:
        """Take what was found for the partitions, and return what is to be sent of it."""
        return FetchReply(self.error, NO_SESSION_ID, list(results))


class FullFetchContext(FetchContext):
    """A fetch that names all its partitions and would like a session."""

    __slots__ = ("_cache", "_is_follower", "_uses_topic_ids")

    def __init__(
        self,
        cache: FetchSessionCache,
        partitions: Collection[SessionPartition],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
    ) -> None:
        super().__init__(partitions)
        self._cache = cache
        self._is_follower = is_follower
        self._uses_topic_ids = uses_topic_ids

    def finish(
        self, results: Iterable[Result], now_ms: int, size_of: SizeOf | None = None
    ) -> FetchReply:
        """Send everything, with the id of a new session if there is room for one."""
        found = list(results)
        session_id = self._cache.try_create(
            found, now_ms, is_follower=self._is_follower, uses_topic_ids=self._uses_topic_ids
        )
        return FetchReply(ErrorCode.NONE, session_id, found)


class IncrementalFetchContext(FetchContext):
    """The next fetch of a session."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.partitions.values())
        self._session = session
        self._epoch = session.epoch

    def may_omit(
        self, partition: SessionPartition, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Tell whether nothing has changed."""
        return (
            partition.high_watermark == high_watermark
            and partition.log_start_offset == log_start_offset
        )

    def finish(
        self, results: Iterable[Result], now_ms: int, size_of: SizeOf | None = None
    ) -> FetchReply:
        """Send what is new. Partitions without a result are as they were."""
        session = self._session
        if session.epoch != self._epoch:
            # The fetcher has given up waiting for this answer and asked again.
            return FetchReply(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, [])
        found: list[Result] = []
        with_records: list[SessionPartition] = []
        for result in results:
            partition, data = result
            size = _size_of(data) if size_of is None else size_of(data)
            if size:
                with_records.append(partition)
            if _note(partition, data) or size:
                found.append(result)
        for partition in with_records:
            key = _key(partition, session.uses_topic_ids)
            if session.partitions.pop(key, None) is not None:
                session.partitions[key] = partition
        return FetchReply(ErrorCode.NONE, session.id, found)


class FetchSessionCache:
    """The sessions of a node."""

    def __init__(self, slots: int = 1000, *, rng: Rng, eviction_ms: int = 120_000) -> None:
        """``eviction_ms`` is how long a session must be unused, or exist, to be evicted."""
        self._slots = slots
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
        #: How many sessions had to make room for another.
        self.evictions = 0

    @property
    def session_count(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    def open(
        self, request: FetchRequest, version: int, topic_name: TopicNameOf, now_ms: int
    ) -> FetchContext:
        """Begin the handling of a fetch request."""
        uses_topic_ids = version >= TOPIC_ID_VERSION_MIN
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            session = self._sessions.get(request.session_id)
            if session is not None:
                self._remove(session)
            partitions = _requested(request, uses_topic_ids, topic_name).values()
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(partitions)
            return FullFetchContext(
                self,
                partitions,
                is_follower=is_from_follower(request, version),
                uses_topic_ids=uses_topic_ids,
            )
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._advance(session, request, topic_name, now_ms)

    def _advance(
        self, session: FetchSession, request: FetchRequest, topic_name: TopicNameOf, now_ms: int
    ) -> FetchContext:
        """Apply the changes that an incremental request makes to its session."""
        partitions, unresolved = session.partitions, session.unresolved
        if unresolved:
            for key, partition in list(unresolved.items()):
                partition.topic = topic_name(partition.topic_id)
                if partition.topic is not None:
                    del unresolved[key]
        requested: dict[_Key, SessionPartition] = {}
        if request.topics:
            requested = _requested(request, session.uses_topic_ids, topic_name)
        for key, partition in requested.items():
            known = partitions.get(key)
            if known is not None:
                known.request = partition.request
                continue
            partitions[key] = partition
            if partition.topic is None:
                unresolved[key] = partition
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if session.uses_topic_ids else topic.topic
            for index in topic.partitions:
                partitions.pop((name, index), None)
                unresolved.pop((name, index), None)
        if not partitions:
            self._remove(session)
            return FetchContext(requested.values())
        self._touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetchContext(session)

    def try_create(
        self, results: list[Result], now_ms: int, *, is_follower: bool, uses_topic_ids: bool
    ) -> int:
        """Make a session of a full fetch's partitions; return its id, or 0 if there is no room."""
        partitions: dict[_Key, SessionPartition] = {}
        if len(self._sessions) >= self._slots and not self._evict(
            (is_follower, len(results), NO_SESSION_ID), now_ms
        ):
            return NO_SESSION_ID
        for partition, data in results:
            partition.high_watermark = data.high_watermark
            partition.log_start_offset = data.log_start_offset
            partitions[_key(partition, uses_topic_ids)] = partition
        session = FetchSession(
            id=self._new_id(),
            is_privileged=is_follower,
            uses_topic_ids=uses_topic_ids,
            partitions=partitions,
            created_ms=now_ms,
            last_used_ms=now_ms,
            epoch=next_epoch(INITIAL_EPOCH),
            unresolved={key: part for key, part in partitions.items() if part.topic is None},
        )
        self._sessions[session.id] = session
        self._touch(session, now_ms)
        return session.id

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randrange(1, _INT32_MAX)
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
        elif session.is_privileged:
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

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self.partition_count -= session.size


def is_from_follower(request: FetchRequest, version: int) -> bool:
    """Tell whether a replica asks, and not a consumer."""
    if version >= _REPLICA_STATE_VERSION_MIN:
        return request.replica_state.replica_id >= 0
    return request.replica_id >= 0


def group_by_topic(results: Iterable[Result]) -> tuple[FetchableTopicResponse, ...]:
    """Arrange results as a response has them: neighbours of one topic together."""
    grouped: list[tuple[SessionPartition, list[PartitionData]]] = []
    for partition, data in results:
        if grouped:
            last, found = grouped[-1]
            if last.topic_id == partition.topic_id and last.topic == partition.topic:
                found.append(data)
                continue
        grouped.append((partition, [data]))
    return tuple(
        FetchableTopicResponse(
            topic=TopicName(first.topic or ""), topic_id=first.topic_id, partitions=tuple(found)
        )
        for first, found in grouped
    )


def _requested(
    request: FetchRequest, uses_topic_ids: bool, topic_name: TopicNameOf
) -> dict[_Key, SessionPartition]:
    """Return the partitions that a request names; of one named twice the later wish counts."""
    found: dict[_Key, SessionPartition] = {}
    for topic in request.topics:
        name = topic_name(topic.topic_id) if uses_topic_ids else topic.topic
        topic_id = topic.topic_id if uses_topic_ids else ZERO_UUID
        topic_key = topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            key = (topic_key, partition.partition)
            found[key] = SessionPartition(name, topic_id, partition.partition, partition)
    return found


def _key(partition: SessionPartition, uses_topic_ids: bool) -> _Key:
    topic = partition.topic_id if uses_topic_ids else partition.topic
    assert topic is not None
    return (topic, partition.partition)


def _size_of(data: PartitionData) -> int:
    return len(data.records) if data.records is not None else 0


def _note(partition: SessionPartition, data: PartitionData) -> bool:
    """Remember what the fetcher is told; tell whether there is something beside records."""
    is_new = (
        partition.high_watermark != data.high_watermark
        or partition.log_start_offset != data.log_start_offset
        or data.preferred_read_replica >= 0
        or data.diverging_epoch.epoch >= 0
    )
    partition.high_watermark = data.high_watermark
    partition.log_start_offset = data.log_start_offset
    if data.error_code != ErrorCode.NONE:
        # No partition has this one, so the end of the error is told as well.
        partition.high_watermark = _NOT_SENT
        return True
    return is_new
