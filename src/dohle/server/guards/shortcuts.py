"""Shortcuts whose requests may not be allowed any more.

A shortcut serves requests like one whose sender had the rights for it. That holds until the ACLs
change: then the next request takes the slow path, where it is looked at again. The same goes while
permissions are logged. A producer may come to topics that it has not named before; these are asked
about, and remembered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from dohle.core.acls import CLUSTER_NAME, AclOperation, AclResourceType
from dohle.core.ids import TopicName
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.messages.offset_commit import OffsetCommitRequest
from dohle.protocol.messages.produce import ProduceRequest
from dohle.security.authorizer import Authorizer
from dohle.server.guards.guard import api_name
from dohle.server.net.shortcut import Learn, Served, Shortcut
from dohle.server.partitions.appends import TOPIC_IDS
from dohle.server.partitions.fetch_reader import fetching_replica
from dohle.server.rights import Rights, audit_log

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

_TOPIC, _GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
_TXN_ID = AclResourceType.TRANSACTIONAL_ID
_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
_FETCH_TOPIC_IDS, _COMMIT_TOPIC_IDS = 13, 10
_are_permissions_logged, _DEBUG = audit_log.isEnabledFor, logging.DEBUG


def guarded_learn(key: ApiKey, learn: Learn, authorizer: Authorizer) -> Learn:
    """Return a function that learns shortcuts of requests that are allowed as a whole."""
    guarded, is_allowed = _KINDS[key]
    name = api_name(key)

    def learn_allowed(broker: BrokerServer, served: Served) -> Shortcut | None:
        assert served.sender is not None, "the dispatcher tells"
        if _are_permissions_logged(_DEBUG):
            return None
        rights = Rights.of(authorizer, served.sender, name)
        if not is_allowed(broker, served, rights):
            return None
        learnt = learn(broker, served)
        return None if learnt is None else guarded(learnt, authorizer, rights, served.version)

    return learn_allowed


class GuardedShortcut:
    """A shortcut that serves as long as the ACLs do not change."""

    joins: ClassVar[bool] = False
    __slots__ = ("_authorizer", "_handle", "_rights", "_version", "fits", "served")

    def __init__(
        self, learnt: Shortcut, authorizer: Authorizer, rights: Rights, version: int
    ) -> None:
        self.served = 0
        self.fits = learnt.fits
        self._handle = learnt.handle
        self._authorizer = authorizer
        self._rights = rights
        self._version = authorizer.version

    def handle(self, broker: BrokerServer, fields: Any) -> Any:
        """Serve a request; None if it must take the slow path."""
        if self._authorizer.version != self._version or _are_permissions_logged(_DEBUG):
            return None
        return self._handle(broker, fields)


class _GuardedCommit(GuardedShortcut):
    """One that may serve requests while those before them are not answered yet."""

    joins: ClassVar[bool] = True
    __slots__ = ()


class _GuardedProduce(GuardedShortcut):
    """That of a producer, whose next requests may be about other topics."""

    joins: ClassVar[bool] = True
    __slots__ = ("_allowed", "_by_id")

    def __init__(
        self, learnt: Shortcut, authorizer: Authorizer, rights: Rights, version: int
    ) -> None:
        super().__init__(learnt, authorizer, rights, version)
        self._by_id = version >= TOPIC_IDS
        #: The topics that were asked about, by name or id; there are no more than exist.
        self._allowed: set[object] = set()

    def handle(self, broker: BrokerServer, fields: Any) -> Any:
        """Append the records; None if the request must take the slow path."""
        if self._authorizer.version != self._version or _are_permissions_logged(_DEBUG):
            return None
        if len(fields) == 2:
            # Otherwise it is the topic that this was learnt from.
            topics, _ = fields[1]
            allowed, by_id = self._allowed, self._by_id
            for _, name, topic_id, _ in topics:
                if (topic_id if by_id else name) not in allowed and not self._may_write(
                    broker, name, topic_id
                ):
                    return None
        return self._handle(broker, fields)

    def _may_write(self, broker: BrokerServer, name: TopicName, topic_id: Any) -> bool:
        image = broker.image
        topic = image.topic_by_id(topic_id) if self._by_id else image.topic(name)
        if topic is None or not self._rights.still_may(_WRITE, _TOPIC, topic.name):
            return False
        self._allowed.add(topic_id if self._by_id else name)
        return True


def _may_produce(broker: BrokerServer, served: Served, rights: Rights) -> bool:
    request: ProduceRequest = served.request
    name = request.transactional_id
    if name is not None and not rights.still_may(_WRITE, _TXN_ID, name):
        return False
    if served.version >= TOPIC_IDS:
        names = _names_of(broker, (topic.topic_id for topic in request.topic_data))
    else:
        names = (topic.name for topic in request.topic_data)
    return _may_all(rights, _WRITE, names)


def _may_fetch(broker: BrokerServer, served: Served, rights: Rights) -> bool:
    request: FetchRequest = served.request
    if fetching_replica(request) is not None:
        return rights.still_may(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
    if served.version >= _FETCH_TOPIC_IDS:
        names = _names_of(broker, (topic.topic_id for topic in request.topics))
    else:
        names = (topic.topic for topic in request.topics)
    # There is no shortcut for the sessions of consumers, which are about more than they name.
    return _may_all(rights, _READ, names)


def _may_commit(broker: BrokerServer, served: Served, rights: Rights) -> bool:
    request: OffsetCommitRequest = served.request
    if not rights.still_may(_READ, _GROUP, request.group_id):
        return False
    if served.version >= _COMMIT_TOPIC_IDS:
        names = _names_of(broker, (topic.topic_id for topic in request.topics))
    else:
        names = (topic.name for topic in request.topics)
    return _may_all(rights, _READ, names)


def _names_of(broker: BrokerServer, topic_ids: Iterable[Any]) -> Iterator[TopicName | None]:
    return (broker.topic_name(topic_id) for topic_id in topic_ids)


def _may_all(rights: Rights, operation: AclOperation, names: Iterable[TopicName | None]) -> bool:
    """Tell whether all may be used; nothing is known of a topic that this broker does not know yet.

    What is learnt now would still be served when it does: without a look at the rights.
    """
    return all(name is not None and rights.still_may(operation, _TOPIC, name) for name in names)


_IsAllowed = Callable[["BrokerServer", Served, Rights], bool]
_KINDS: dict[ApiKey, tuple[type[GuardedShortcut], _IsAllowed]] = {
    ApiKey.PRODUCE: (_GuardedProduce, _may_produce),
    ApiKey.FETCH: (GuardedShortcut, _may_fetch),
    ApiKey.OFFSET_COMMIT: (_GuardedCommit, _may_commit),
}
