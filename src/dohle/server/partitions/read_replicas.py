"""Sending a consumer to another replica than the leader, and telling it where brokers are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from dohle.core.config.replication import RACK_AWARE_SELECTOR
from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages import fetch, produce
from dohle.replication.read_replicas import ReadableReplica, preferred_replica
from dohle.server.partitions.partitions import Partition

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

#: From this version of Fetch on, a consumer names its rack.
_NAMES_RACK = 11


def selects_by_rack(config: BrokerConfig) -> bool:
    """Tell whether this broker sends consumers to replicas in their racks."""
    return config["replica.selector.class"] == RACK_AWARE_SELECTOR


def client_rack(broker: BrokerServer, request: fetch.FetchRequest, version: int) -> str:
    """Return the rack of a consumer, if it matters where it is; else nothing."""
    return request.rack_id if broker.selects_by_rack and version >= _NAMES_RACK else ""


def replica_to_read(
    broker: BrokerServer, partition: Partition, offset: int, rack: str, listener: str
) -> BrokerId | None:
    """Return the follower to read an offset from instead of this leader, if there is one."""
    if not partition.is_led:
        return None
    image = broker.image
    return preferred_replica(
        rack,
        _rack(image, broker.node_id, listener),
        _readable(image, partition, offset, listener),
    )


def _readable(
    image: ClusterImage, partition: Partition, offset: int, listener: str
) -> Iterator[ReadableReplica]:
    for id_, follower in partition.replication.readable_followers(offset):
        yield ReadableReplica(
            id_, _rack(image, id_, listener), follower.log_end_offset, follower.caught_up_ms
        )


def _rack(image: ClusterImage, broker_id: BrokerId, listener: str) -> str | None:
    """Return the rack of a broker; none if clients of this listener do not reach it."""
    broker = image.broker(broker_id)
    if broker is None or broker.fenced or listener not in broker.endpoints:
        return None
    return broker.rack


#: As an answer to Fetch has it, or one to Produce.
_Endpoint = TypeVar("_Endpoint", fetch.NodeEndpoint, produce.NodeEndpoint)


def node_endpoints(
    image: ClusterImage, brokers: Iterable[BrokerId], listener: str, of: type[_Endpoint]
) -> tuple[_Endpoint, ...]:
    """Return where the clients of a listener reach these brokers, as far as they do."""
    found = []
    for broker_id in sorted(brokers):
        broker = image.broker(broker_id)
        endpoint = None if broker is None or broker.fenced else broker.endpoints.get(listener)
        if broker is not None and endpoint is not None:
            found.append(
                of(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    return tuple(found)
