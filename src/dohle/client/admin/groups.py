"""Groups: listing and describing them, and their committed offsets.

Each group's coordinator is asked. A group's protocol is found out by asking: first for a consumer
group (KIP-848), then for a classic one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dohle.client.admin.group_values import (
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
    GroupType,
)
from dohle.client.admin.requests import AdminRequests, several
from dohle.client.admin.results import Results
from dohle.client.coordinators import CoordinatorKind
from dohle.client.errors import answered_error
from dohle.client.group.consumer_protocol import (
    PROTOCOL_TYPE,
    by_topic,
    read_assignment,
    read_subscription,
)
from dohle.client.group.membership import GroupMetadata
from dohle.client.group.offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, GroupId, TopicName, TopicPartition
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.messages import consumer_group_describe as consumer_groups
from dohle.protocol.messages import describe_groups as classic_groups
from dohle.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from dohle.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from dohle.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

_STATES_VERSION, _TYPES_VERSION = 4, 5
_DEAD = "Dead"


class GroupAdmin(AdminRequests):
    """The part of an admin client for groups."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> tuple[GroupListing, ...]:
        """Return all groups, or those in some states or of some types."""
        states_filter, types_filter = tuple(states), tuple(types)

        async def ask(connection: Connection) -> ListGroupsResponse:
            version = connection.version_of(ListGroupsRequest)
            too_old = (states_filter and version < _STATES_VERSION) or (
                types_filter and version < _TYPES_VERSION
            )
            if too_old:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{connection.address} cannot list groups by state or type",
                )
            answer = await connection.request(
                ListGroupsRequest(states_filter=states_filter, types_filter=types_filter),
                ListGroupsResponse,
            )
            if answer.error_code:
                raise answered_error(answer.error_code, f"groups of {connection.address}")
            return answer

        nodes = [broker.node_id for broker in await self._cluster.brokers()]
        answers = (await self._ask_brokers(nodes, "list groups", ask)).ok()
        found = [
            GroupListing(
                each.group_id,
                each.protocol_type,
                each.group_state or None,
                each.group_type.lower() or None,
                node_id,
            )
            for node_id, answer in answers.items()
            for each in answer.groups
        ]
        return tuple(sorted(found, key=lambda group: group.group_id))

    async def describe_groups(self, group_ids: Iterable[str]) -> Results[str, GroupDescription]:
        """Return groups with their members; one that does not exist is an error."""
        wanted = several(group_ids, "group_ids")
        kind = CoordinatorKind.GROUP
        coordinators = self._cluster.coordinators
        found = await coordinators.ask_each(
            kind, wanted, "describe groups", self._describe_consumer_groups
        )
        others = [
            group_id
            for group_id, error in found.errors.items()
            if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
        ]
        if not others:
            return found
        classic = await coordinators.ask_each(
            kind, others, "describe groups", self._describe_classic_groups
        )
        return Results(
            {**found.done, **classic.done},
            {
                **{key: error for key, error in found.errors.items() if key not in others},
                **classic.errors,
            },
        )

    async def delete_groups(self, group_ids: Iterable[str]) -> Results[str, None]:
        """Delete groups without members, and their committed offsets."""

        async def ask(connection: Connection, some: list[str]) -> dict[str, KafkaError | None]:
            answer = await connection.request(
                DeleteGroupsRequest(groups_names=tuple(map(GroupId, some))), DeleteGroupsResponse
            )
            return {
                each.group_id: answered_error(each.error_code, f"group {each.group_id}")
                if each.error_code
                else None
                for each in answer.results
            }

        return await self._cluster.coordinators.ask_each(
            CoordinatorKind.GROUP, several(group_ids, "group_ids"), "delete groups", ask
        )

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> Results[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets; partitions without one are left out."""
        wanted = None if partitions is None else tuple(partitions)

        async def ask(connection: Connection) -> Results[TopicPartition, OffsetAndMetadata]:
            return await fetch_offsets(
                connection, GroupId(group_id), wanted, require_stable=require_stable
            )

        return await self._cluster.coordinators.ask(
            CoordinatorKind.GROUP, group_id, f"offsets of group {group_id}", ask
        )

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Results[TopicPartition, None]:
        """Commit offsets from outside the group; refused if it has members."""

        async def ask(connection: Connection) -> Results[TopicPartition, None]:
            return await commit_offsets(connection, GroupMetadata(GroupId(group_id)), offsets)

        try:
            return await self._cluster.coordinators.ask(
                CoordinatorKind.GROUP, group_id, f"offsets of group {group_id}", ask
            )
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                raise KafkaError(error.code, _has_members(group_id)) from None
            raise

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets; refused for topics that the group subscribes to."""
        request = OffsetDeleteRequest(
            group_id=GroupId(group_id),
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=tuple(
                        OffsetDeleteRequestPartition(partition_index=each) for each in some
                    ),
                )
                for name, some in by_topic(partitions).items()
            ),
        )

        async def ask(connection: Connection) -> Results[TopicPartition, None]:
            answer = await connection.request(request, OffsetDeleteResponse)
            if answer.error_code:
                raise answered_error(answer.error_code, f"offsets of group {group_id}")
            done: dict[TopicPartition, None] = {}
            errors: dict[TopicPartition, KafkaError] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        about = f"offset of group {group_id} for {partition}"
                        errors[partition] = answered_error(each.error_code, about)
                    else:
                        done[partition] = None
            return Results(done, errors)

        return await self._cluster.coordinators.ask(
            CoordinatorKind.GROUP, group_id, f"offsets of group {group_id}", ask
        )

    async def _describe_consumer_groups(
        self, connection: Connection, group_ids: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        answer = await connection.request(
            consumer_groups.ConsumerGroupDescribeRequest(group_ids=tuple(map(GroupId, group_ids))),
            consumer_groups.ConsumerGroupDescribeResponse,
        )
        return {
            each.group_id: answered_error(
                each.error_code, f"group {each.group_id}", each.error_message
            )
            if each.error_code
            else _consumer_group(each, self._coordinator_of(CoordinatorKind.GROUP, each.group_id))
            for each in answer.groups
        }

    async def _describe_classic_groups(
        self, connection: Connection, group_ids: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        answer = await connection.request(
            classic_groups.DescribeGroupsRequest(groups=tuple(map(GroupId, group_ids))),
            classic_groups.DescribeGroupsResponse,
        )
        found: dict[str, GroupDescription | KafkaError] = {}
        for each in answer.groups:
            group_id = each.group_id
            if each.error_code:
                found[group_id] = answered_error(
                    each.error_code, f"group {group_id}", each.error_message
                )
            elif each.group_state == _DEAD:
                found[group_id] = KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist"
                )
            else:
                found[group_id] = _classic_group(
                    each, self._coordinator_of(CoordinatorKind.GROUP, group_id)
                )
        return found


def _has_members(group_id: str) -> str:
    return (
        f"group {group_id} has members, and only they can commit its offsets: stop its consumers "
        "first"
    )


def _consumer_group(
    group: consumer_groups.DescribedGroup, coordinator_id: BrokerId
) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        GroupType.CONSUMER,
        group.group_state,
        PROTOCOL_TYPE,
        group.assignor_name,
        coordinator_id,
        tuple(
            GroupMemberDescription(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                _partitions(each.assignment),
                _partitions(each.target_assignment),
                each.subscribed_topic_names,
                each.subscribed_topic_regex,
                each.member_epoch,
            )
            for each in group.members
        ),
        group.group_epoch,
    )


def _partitions(assignment: consumer_groups.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_group(
    group: classic_groups.DescribedGroup, coordinator_id: BrokerId
) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        GroupType.CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator_id,
        tuple(_classic_member(each, group.protocol_type) for each in group.members),
    )


def _classic_member(
    member: classic_groups.DescribedGroupMember, protocol_type: str
) -> GroupMemberDescription:
    """Return a member; its assignment is known only if it is a consumer's and can be decoded."""
    assignment: tuple[TopicPartition, ...] = ()
    topics: tuple[TopicName, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        try:
            assignment = read_assignment(bytes(member.member_assignment))
            topics = read_subscription(bytes(member.member_metadata)).topics
        except MalformedMessage:
            pass
    return GroupMemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assignment,
        subscribed_topics=topics,
    )
