"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, then only changes.

A full fetch (epoch 0) may get a session, whose partitions and what was last told about each are
kept here. In a session a request holds only partitions that are new, changed or forgotten, and the
answer only those with something to tell: records, an error, a moved high watermark or log start, a
preferred replica, a diverging epoch. A partition that was answered with records goes to the end of
the reading order, so that the first do not starve the rest.

Epochs count the requests of a session, so that a lost or repeated one is noticed. From version 13
on topics are named by id, and a session does not change between ids and names; an id that is not
known stays in the session and is looked up again with each request.

A follower's session knows of which partitions there is nothing to tell (``settled``), and a
fetch of it leaves them out.

Which sessions there are is in ``fetch_session_cache``. A request may name very many partitions:
whatever goes through all of them does so in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, Uuid
from dohle.core.steps import Steps
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    PartitionData,
)
from dohle.replication.partition import Follower
from dohle.replication.settled import PARTITIONS_PER_STEP, Unsettled

if TYPE_CHECKING:
    from dohle.replication.fetch_session_cache import FetchSessionCache

NO_SESSION_ID = 0
TOPIC_ID_VERSION_MIN = 13
INT32_MAX = 2**31 - 1

_REPLICA_STATE_VERSION_MIN = 15
_NOT_SENT = -1
# Looking up a member of an enum is slow.
_NO_ERROR = ErrorCode.NONE

#: Tells the name of a topic id, if there is such a topic.
TopicNameOf = Callable[[Uuid], TopicName | None]
#: A topic's id, or its name in sessions that use names; with it the partition.
Key = tuple[Uuid | TopicName, int]


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after this one: 1 follows the largest."""
    return 1 if epoch == INT32_MAX else epoch + 1


class SessionPartition:
    """A partition that a fetch asks for, with what the fetcher was last told about it."""

    __slots__ = (
        "follower",
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
        #: The broker's own object for it, kept here for the next fetch.
        self.local: Any = None
        #: The follower whose fetches the session's pulse notes, as long as it is settled.
        self.follower: Follower | None = None

    def __repr__(self) -> str:
        return (
            f"SessionPartition({self.topic}-{self.partition}, "
            f"fetch_offset={self.request.fetch_offset})"
        )


#: What was found for a partition.
Result = tuple[SessionPartition, PartitionData]


class FetchReply(NamedTuple):
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
    partitions: dict[Key, SessionPartition]
    created_ms: int
    last_used_ms: int
    epoch: int
    #: Those whose topic id was not known when last looked up.
    unresolved: dict[Key, SessionPartition]
    #: What there is to look at in a follower's session; None in a consumer's, which looks at all.
    unsettled: Unsettled | None = None
    #: How many partitions there were when it was last used.
    size: int = 0
    #: Who may take its slot: see ``FetchSessionCache``.
    evictable_by_followers: bool = False
    evictable_by_all: bool = False

    @property
    def eviction_key(self) -> tuple[bool, int, int]:
        """The order of eviction: what is worth less comes first."""
        return (self.is_privileged, self.size, self.id)

    # What a request changes

    def look_up_again(self, topic_name: TopicNameOf) -> Steps[None]:
        """See whether there are topics now that were not known."""
        if not self.unresolved:
            return
        for number, (key, partition) in enumerate(list(self.unresolved.items()), 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
            partition.topic = topic_name(partition.topic_id)
            if partition.topic is not None and self.unresolved.pop(key, None) is not None:
                self._watch(partition)

    def count_new(self, requested: Sequence[SessionPartition]) -> Steps[int]:
        """Tell how many of the partitions asked for are not in the session yet."""
        count = 0
        for number, partition in enumerate(requested, 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
            count += session_key(partition, self.uses_topic_ids) not in self.partitions
        return count

    def add(self, requested: Sequence[SessionPartition]) -> Steps[None]:
        """Take in what is asked for of new partitions, or anew of known ones."""
        for number, partition in enumerate(requested, 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
            key = session_key(partition, self.uses_topic_ids)
            known = self.partitions.get(key)
            if known is not None:
                asked, known.request = known.request, partition.request
                if asked.current_leader_epoch != partition.request.current_leader_epoch:
                    # A follower may not have used what it was told in the epoch before.
                    known.high_watermark = _NOT_SENT
                if self.unsettled is not None:
                    self.unsettled.add(known)
                continue
            self.partitions[key] = partition
            if partition.topic is None:
                self.unresolved[key] = partition
            self._watch(partition)

    def _watch(self, partition: SessionPartition) -> None:
        if self.unsettled is not None:
            self.unsettled.watch(partition)

    def forget(self, request: FetchRequest) -> Steps[None]:
        """Leave out the partitions that a request says are not asked for any more."""
        left = PARTITIONS_PER_STEP
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if self.uses_topic_ids else topic.topic
            for index in topic.partitions:
                gone = self.partitions.pop((name, index), None)
                self.unresolved.pop((name, index), None)
                if gone is not None and self.unsettled is not None:
                    self.unsettled.forget(gone)
                left -= 1
                if left <= 0:
                    left = PARTITIONS_PER_STEP
                    yield None

    def is_to_look_at_all(self, request: FetchRequest, now_ms: int) -> bool:
        """Tell whether a follower's fetch is to look at what is settled as well."""
        epoch = request.replica_state.replica_epoch
        return self.unsettled is not None and self.unsettled.is_to_look_at_all(now_ms, epoch)

    def look_at_all(self, request: FetchRequest, now_ms: int) -> Steps[None]:
        """Have the next fetch look at what is settled as well."""
        if self.unsettled is not None:
            epoch = request.replica_state.replica_epoch
            yield from self.unsettled.add_all(self.partitions, now_ms, epoch)


class FetchContext:
    """One fetch request: what to read, and how to answer.

    A request that is refused for its session has an ``error`` and nothing to read.
    """

    __slots__ = ("error", "partitions")

    error: ErrorCode
    #: In the order in which they are to be read. The list is the context's own.
    partitions: list[SessionPartition]

    def __init__(self, partitions: list[SessionPartition], error: ErrorCode = _NO_ERROR) -> None:
        self.partitions = partitions
        self.error = error

    def may_omit(
        self, partition: SessionPartition, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Tell whether a partition with nothing else to tell can be left out of the results."""
        return False

    def look_again(self) -> list[SessionPartition]:
        """Return what to read after a wait."""
        return self.partitions

    @property
    def unsettled(self) -> Unsettled | None:
        """What a follower's session has to look at, if it keeps that apart."""
        return None

    def finish(self, results: list[Result], now_ms: int) -> Steps[FetchReply]:
        """Take what was found for the partitions, and return what is to be sent of it."""
        yield from ()
        return FetchReply(self.error, NO_SESSION_ID, results)

    def throttled(self) -> FetchReply:
        """Return what is sent to a consumer that must wait: nothing, and no new session."""
        return FetchReply(self.error, NO_SESSION_ID, [])


def refused(error: ErrorCode) -> FetchContext:
    """Refuse a request for its session."""
    return FetchContext([], error)


class FullFetchContext(FetchContext):
    """A fetch that names all its partitions and would like a session."""

    __slots__ = ("_cache", "_is_follower", "_uses_topic_ids")

    def __init__(
        self,
        cache: FetchSessionCache,
        partitions: list[SessionPartition],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
    ) -> None:
        super().__init__(partitions)
        self._cache = cache
        self._is_follower = is_follower
        self._uses_topic_ids = uses_topic_ids

    def finish(self, results: list[Result], now_ms: int) -> Steps[FetchReply]:
        """Send everything, with the id of a new session if there is room for one."""
        session_id = yield from self._cache.try_create(
            results, now_ms, is_follower=self._is_follower, uses_topic_ids=self._uses_topic_ids
        )
        return FetchReply(_NO_ERROR, session_id, results)


class IncrementalFetchContext(FetchContext):
    """The next fetch of a session."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession, now_ms: int) -> None:
        unsettled = session.unsettled
        if unsettled is None:
            super().__init__(list(session.partitions.values()))
        else:
            super().__init__(unsettled.fetched(now_ms))
        self._session = session
        self._epoch = session.epoch

    def look_again(self) -> list[SessionPartition]:
        """Return what to read after a wait, in which something may have happened to others."""
        unsettled = self.unsettled
        return self.partitions if unsettled is None else list(unsettled)

    @property
    def unsettled(self) -> Unsettled | None:
        """What there is to look at, unless a later request of the session has taken over."""
        return self._session.unsettled if self._session.epoch == self._epoch else None

    def may_omit(
        self, partition: SessionPartition, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Tell whether nothing has changed."""
        return (
            partition.high_watermark == high_watermark
            and partition.log_start_offset == log_start_offset
        )

    def finish(self, results: list[Result], now_ms: int) -> Steps[FetchReply]:
        """Send what is new. Partitions without a result are as they were."""
        session = self._session
        if session.epoch != self._epoch:
            # The fetcher has given up waiting for this answer and asked again.
            return FetchReply(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, [])
        if not results:
            return FetchReply(_NO_ERROR, session.id, results)
        found: list[Result] = []
        with_records: list[SessionPartition] = []
        for number, result in enumerate(results, 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
            partition, data = result
            has_records = bool(data.records)
            if has_records:
                with_records.append(partition)
            if note_told(partition, data) or has_records:
                found.append(result)
        for partition in with_records:
            self._put_last(partition)
        return FetchReply(_NO_ERROR, session.id, found)

    def throttled(self) -> FetchReply:
        """Send nothing. The session is at its next request all the same."""
        session = self._session
        is_current = session.epoch == self._epoch
        error = _NO_ERROR if is_current else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return FetchReply(error, session.id, [])

    def tell(
        self,
        partition: SessionPartition,
        high_watermark: int,
        log_start_offset: int,
        *,
        has_records: bool,
    ) -> bool:
        """Take in what ``finish`` would of one partition without an error.

        False if there is nothing to tell. The session must still be at this request.
        """
        if has_records:
            self._put_last(partition)
        elif self.may_omit(partition, high_watermark, log_start_offset):
            return False
        partition.high_watermark = high_watermark
        partition.log_start_offset = log_start_offset
        return True

    def _put_last(self, partition: SessionPartition) -> None:
        """Read a partition that was answered with records after the others."""
        session = self._session
        key = session_key(partition, session.uses_topic_ids)
        if session.partitions.pop(key, None) is not None:
            session.partitions[key] = partition
        if session.unsettled is not None:
            session.unsettled.put_last(partition)


def is_from_follower(request: FetchRequest, version: int) -> bool:
    """Tell whether a replica asks, and not a consumer."""
    if version >= _REPLICA_STATE_VERSION_MIN:
        return request.replica_state.replica_id >= 0
    return request.replica_id >= 0


def group_by_topic(results: list[Result]) -> Steps[tuple[FetchableTopicResponse, ...]]:
    """Arrange results as a response has them, neighbours of one topic together; empty the list."""
    grouped: list[FetchableTopicResponse] = []
    last: SessionPartition | None = None
    found: list[PartitionData] = []
    results.reverse()
    while results:
        if not len(results) % PARTITIONS_PER_STEP:
            yield None
        partition, data = results.pop()
        if last is not None and not (
            last.topic_id == partition.topic_id and last.topic == partition.topic
        ):
            grouped.append(_topic_response(last, found))
            found = []
        last = partition
        found.append(data)
    if last is not None:
        grouped.append(_topic_response(last, found))
    return tuple(grouped)


def _topic_response(
    partition: SessionPartition, found: list[PartitionData]
) -> FetchableTopicResponse:
    return FetchableTopicResponse(
        topic=TopicName(partition.topic or ""),
        topic_id=partition.topic_id,
        partitions=tuple(found),
    )


def requested_partitions(
    request: FetchRequest, uses_topic_ids: bool, topic_name: TopicNameOf
) -> Steps[list[SessionPartition]]:
    """Return the partitions that a request names; of one named twice the later wish counts."""
    found: list[SessionPartition] = []
    by_topic: dict[Uuid | TopicName, dict[int, SessionPartition]] = {}
    left = PARTITIONS_PER_STEP
    for topic in request.topics:
        name = topic_name(topic.topic_id) if uses_topic_ids else topic.topic
        topic_id = topic.topic_id if uses_topic_ids else ZERO_UUID
        of_topic = by_topic.setdefault(topic_id if uses_topic_ids else topic.topic, {})
        for asked in topic.partitions:
            index = asked.partition
            if index in of_topic:
                of_topic[index].request = asked
            else:
                partition = of_topic[index] = SessionPartition(name, topic_id, index, asked)
                found.append(partition)
            left -= 1
            if left <= 0:
                left = PARTITIONS_PER_STEP
                yield None
    return found


def session_key(partition: SessionPartition, uses_topic_ids: bool) -> Key:
    """Return what a session knows a partition by."""
    topic = partition.topic_id if uses_topic_ids else partition.topic
    assert topic is not None
    return (topic, partition.partition)


def note_told(partition: SessionPartition, data: PartitionData) -> bool:
    """Remember what the fetcher is told; tell whether there is something beside records."""
    is_new = (
        partition.high_watermark != data.high_watermark
        or partition.log_start_offset != data.log_start_offset
        or data.preferred_read_replica >= 0
        or data.diverging_epoch.epoch >= 0
    )
    partition.high_watermark = data.high_watermark
    partition.log_start_offset = data.log_start_offset
    if data.error_code != _NO_ERROR:
        # No partition has this one, so the end of the error is told as well.
        partition.high_watermark = _NOT_SENT
        return True
    if data.diverging_epoch.epoch >= 0:
        # Whoever is told this uses nothing else of the answer.
        partition.high_watermark = _NOT_SENT
    return is_new
