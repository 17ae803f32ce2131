"""Makes a member of a group, by the protocol of the consumer's settings."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from dohle.client.cluster import Cluster
from dohle.client.config import ConsumerConfig, GroupProtocol
from dohle.client.group.assignors import ASSIGNORS
from dohle.client.group.consumer_member import ConsumerProtocolMember, server_regex
from dohle.client.group.consumer_membership import ConsumerMembership
from dohle.client.group.member import GiveUp, GroupMember, TakeOver, Topics
from dohle.client.group.membership import GroupMembership
from dohle.client.net.connection import Channel
from dohle.core.errors import KafkaError
from dohle.core.ids import GroupId
from dohle.core.uuid import random_uuid, uuid_to_text

Member = GroupMember | ConsumerProtocolMember


def check_for_broker(topics: Topics) -> None:
    """Raise what a broker cannot look for."""
    if isinstance(topics, re.Pattern):
        server_regex(topics)


def new_member(
    cluster: Cluster,
    config: ConsumerConfig,
    group_id: GroupId,
    topics: Topics,
    channel: Channel,
    *,
    give_up: GiveUp,
    save: Callable[[], Awaitable[None]],
    take: TakeOver,
    wake_reader: Callable[[], None],
    report: Callable[[KafkaError], None],
) -> Member:
    """Return a member that has not started yet."""
    if config.group_protocol is GroupProtocol.CONSUMER:
        return ConsumerProtocolMember(
            cluster,
            ConsumerMembership(
                group_id,
                uuid_to_text(random_uuid(cluster.rng)),
                group_instance_id=config.group_instance_id,
                rack=config.client_rack or None,
                assignor=config.group_remote_assignor,
                rebalance_timeout_ms=config.max_poll_interval_ms,
            ),
            topics,
            channel,
            give_up=give_up,
            take=take,
            wake_reader=wake_reader,
            report=report,
        )
    return GroupMember(
        cluster,
        GroupMembership(
            group_id,
            [ASSIGNORS[name] for name in config.partition_assignment_strategy],
            group_instance_id=config.group_instance_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
        ),
        topics,
        channel,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        give_up=give_up,
        save=save,
        take=take,
        wake_reader=wake_reader,
        report=report,
    )
