"""The fetches of a follower from one leader: what the next request asks for, and of what.

The other side of ``fetch_sessions`` (KIP-227): the leader keeps what was asked for, and a request
names only what has changed since. So does this: a round takes as long as there are changes,
however many partitions there are.

A partition is asked for as soon as somebody wants it, left out while it is delayed, and an answer
counts only if what was asked for is still wanted (F13): whatever happens to a partition makes
another wish of it, and the same wish is the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from dohle.protocol.schema import Buffer
from dohle.replication.fetch_sessions import NO_SESSION_ID, next_epoch
from dohle.replication.follower_frames import (
    COMMON_PARTITIONS_MAX,
    COMMON_VERSIONS,
    CommonRequests,
    Told,
    read_answer,
)

#: A partition, by the id of its topic.
Key = tuple[Uuid, int]

_FIRST_EPOCH = 0
#: From this version of Fetch on, a replica names the registration of its broker (KIP-903).
_REPLICA_STATE_VERSION = 15


class FetchLimits(NamedTuple):
    """How long a leader may wait, and how much it may send."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class PartitionAnswer(NamedTuple):
    """What a leader has said of a partition that is still wanted."""

    key: Key
    asked: FetchPartition
    data: PartitionData


class SessionLost(Exception):
    """The leader and the follower do not agree on the session: the connection is of no use."""


class FollowerFetches:
    """What is asked of one leader."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION_ID
        self._epoch = _FIRST_EPOCH
        self._wanted: dict[Key, FetchPartition] = {}
        #: What the leader's session has.
        self._sent: dict[Key, FetchPartition] = {}
        #: Those of which the session has something else than what is wanted. (In order.)
        self._changed: dict[Key, None] = {}
        #: What frames common requests, and what it was made for.
        self._common: CommonRequests | None = None
        self._common_kind: tuple[object, ...] = ()
        self._delayed: dict[Key, int] = {}
        self._due: list[tuple[int, Key]] = []

    # What is wanted

    def want(self, key: Key, fetch: FetchPartition) -> None:
        """Ask for this from the next request on."""
        self._delayed.pop(key, None)
        self._wanted[key] = fetch
        self._changed[key] = None

    def forget(self, key: Key) -> None:
        """Do not ask for a partition any more."""
        self._delayed.pop(key, None)
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def delay(self, key: Key, until_ms: int) -> None:
        """Leave a partition out for a while."""
        self.forget(key)
        self._delayed[key] = until_ms
        heappush(self._due, (until_ms, key))

    def is_wanted(self, key: Key, fetch: FetchPartition) -> bool:
        """Tell whether nothing has happened to a partition since it was asked for."""
        return self._wanted.get(key) is fetch

    @property
    def has_wishes(self) -> bool:
        """Tell whether there is something to ask for."""
        return bool(self._wanted)

    def due(self, now_ms: int) -> list[Key]:
        """Take out those whose delay is over."""
        found = []
        while self._due and self._due[0][0] <= now_ms:
            until_ms, key = heappop(self._due)
            if self._delayed.get(key) == until_ms:
                del self._delayed[key]
                found.append(key)
        return found

    @property
    def next_due_ms(self) -> int | None:
        """When to look for those whose delay is over; it may be too early."""
        return self._due[0][0] if self._due else None

    # Requests and answers

    def common_request(
        self,
        client_id: str,
        replica: BrokerId,
        broker_epoch: int,
        limits: FetchLimits,
        version: int,
    ) -> Callable[[int], bytes] | None:
        """Return what frames the next request for a correlation id, if it only names a few.

        None if it has to say more: ``request`` tells what.
        """
        if (
            self._epoch == _FIRST_EPOCH
            or version not in COMMON_VERSIONS
            or len(self._changed) >= COMMON_PARTITIONS_MAX
        ):
            return None
        wanted, named = self._wanted, {}
        for key in self._changed:
            asked = wanted.get(key)
            if asked is None:
                return None
            named[key] = asked
        kind = self._session_id, client_id, replica, broker_epoch, limits, version
        if self._common is None or self._common_kind != kind:
            like = self._bare_request(replica, broker_epoch, limits, version)
            self._common, self._common_kind = CommonRequests(like, version, client_id), kind
        self._changed.clear()
        self._sent.update(named)
        return partial(self._common.frame, self._epoch, named)

    def request(
        self, replica: BrokerId, broker_epoch: int, limits: FetchLimits, version: int
    ) -> FetchRequest:
        """Return the next request."""
        forgotten: list[Key] = []
        if self._epoch == _FIRST_EPOCH:
            asked = dict(self._wanted)
            self._sent = dict(asked)
        else:
            asked = {}
            for key in self._changed:
                wanted = self._wanted.get(key)
                if wanted is not None:
                    asked[key] = self._sent[key] = wanted
                elif self._sent.pop(key, None) is not None:
                    forgotten.append(key)
        self._changed.clear()
        return self._bare_request(replica, broker_epoch, limits, version).replace(
            topics=_by_topic(asked),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes))
                for topic_id, indexes in _grouped(forgotten).items()
            ),
        )

    def _bare_request(
        self, replica: BrokerId, broker_epoch: int, limits: FetchLimits, version: int
    ) -> FetchRequest:
        """Return the next request without any topics."""
        request = FetchRequest(
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
        )
        if version < _REPLICA_STATE_VERSION:
            return request.replace(replica_id=replica)
        state = ReplicaState(replica_id=replica, replica_epoch=broker_epoch)
        return request.replace(replica_state=state)

    def answered(self, response: FetchResponse) -> list[PartitionAnswer]:
        """Take in the answer to the last request (F17)."""
        error = response.error_code
        if error:
            if error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                raise SessionLost
            # A session that the leader does not know is none; any other is closed by a new one.
            if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION_ID
            self._epoch = _FIRST_EPOCH
            return []
        if self._epoch == _FIRST_EPOCH:
            self._session_id = response.session_id
        self._go_on()
        found = []
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                asked = self.asked(key)
                if asked is not None:
                    found.append(PartitionAnswer(key, asked, data))
        return found

    def answered_commonly(self, frame: Buffer, body: int) -> Sequence[Told] | None:
        """Take in the answer to a common request, if that is a common one, whose body is here.

        What it says of a partition counts if it is still ``asked`` for.
        """
        told = read_answer(frame, body, self._session_id)
        if told is not None:
            self._go_on()
        return told

    def asked(self, key: Key) -> FetchPartition | None:
        """Return what the last request asked for of a partition, if that is still wanted."""
        asked = self._sent.get(key)
        return asked if asked is not None and self._wanted.get(key) is asked else None

    def _go_on(self) -> None:
        if self._session_id != NO_SESSION_ID:
            self._epoch = next_epoch(self._epoch)

    def disconnected(self) -> None:
        """Take in that the leader was not reached, and may have forgotten the session."""
        self._session_id, self._epoch = NO_SESSION_ID, _FIRST_EPOCH


def _grouped(keys: Iterable[Key]) -> dict[Uuid, list[int]]:
    found: dict[Uuid, list[int]] = {}
    for topic_id, index in keys:
        found.setdefault(topic_id, []).append(index)
    return found


def _by_topic(asked: dict[Key, FetchPartition]) -> tuple[FetchTopic, ...]:
    return tuple(
        FetchTopic(
            topic_id=topic_id,
            partitions=tuple(asked[topic_id, index] for index in indexes),
        )
        for topic_id, indexes in _grouped(asked).items()
    )
