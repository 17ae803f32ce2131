"""What may not be seen is left out, or looks as if it were not there (table of section 6)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dohle.core.acls import AclOperation
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, GroupId, TopicName, TransactionalId
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.image import ResourceType
from dohle.protocol.messages import alter_configs, incremental_alter_configs
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from dohle.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from dohle.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.describe_cluster import DescribeClusterRequest
from dohle.protocol.messages.describe_groups import DescribeGroupsRequest
from dohle.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest
from dohle.protocol.messages.list_groups import ListGroupsRequest
from dohle.protocol.messages.list_transactions import ListTransactionsRequest
from dohle.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from dohle.records.builder import BatchBuilder
from dohle.server.node import Node
from tests.security.authority import Authority, key_store
from tests.server.guards.authorized import (
    Wire,
    grant,
    make_topic,
    on_cluster,
    on_group,
    on_guarded_node,
    on_topic,
    on_transaction,
    revoke,
)
from tests.server.wire import batch

_op = AclOperation
_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _named(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=TopicName(name)) for name in names),
        allow_auto_topic_creation=create,
    )


def test_metadata_leaves_out_topics_or_hides_whether_they_exist(tmp_path: Path) -> None:
    """Row "Metadata": all topics: left out; by name 29 + zero id; by id 29 + null name."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "mine")
        await make_topic(node, "hidden")
        await grant(node, on_topic(_op.READ, "mine"))
        everything = await wire.send(MetadataRequest(topics=None))
        assert [topic.name for topic in everything.topics] == ["mine"]
        first = await wire.send(MetadataRequest(topics=()), 0)
        assert [topic.name for topic in first.topics] == ["mine"]

        answer = await wire.send(_named("mine", "hidden", "absent"))
        told = {topic.name: (topic.error_code, topic.topic_id) for topic in answer.topics}
        assert told["mine"][0] == 0
        assert told["hidden"] == told["absent"] == (_TOPIC, ZERO_UUID)
        first = await wire.send(_named("hidden", create=True), 0)
        assert [(topic.name, topic.error_code) for topic in first.topics] == [("hidden", _TOPIC)]

        hidden = node.images.image.topic(TopicName("hidden"))
        assert hidden is not None
        by_id = MetadataRequest(topics=(MetadataRequestTopic(name=None, topic_id=hidden.id),))
        (told_by_id,) = (await wire.send(by_id)).topics
        assert (told_by_id.error_code, told_by_id.name, told_by_id.topic_id) == (
            _TOPIC,
            None,
            hidden.id,
        )

    on_guarded_node(tmp_path, scenario)


def test_a_topic_is_created_only_for_who_may_create_it(tmp_path: Path) -> None:
    """Row "Metadata": to auto-create CREATE C or CREATE topic, else 29."""

    async def scenario(node: Node, wire: Wire) -> None:
        await grant(node, on_topic(_op.DESCRIBE, "new"))
        answer = await wire.send(_named("new", create=True))
        assert answer.topics[0].error_code == _TOPIC
        assert node.images.image.topic(TopicName("new")) is None
        await grant(node, on_topic(_op.CREATE, "new"))
        answer = await wire.send(_named("new", create=True))
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with asyncio.timeout(10):
            while node.images.image.topic(TopicName("new")) is None:
                await wire.send(_named("new"))

    on_guarded_node(tmp_path, scenario)


def test_partitions_of_all_topics_are_told_of_those_that_may_be_seen(tmp_path: Path) -> None:
    """Row "DescribeTopicPartitions": all: left out."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "mine")
        await make_topic(node, "hidden")
        await grant(node, on_topic(_op.WRITE, "mine"))
        answer = await wire.send(DescribeTopicPartitionsRequest())
        assert [topic.name for topic in answer.topics] == ["mine"]
        operations = answer.topics[0].topic_authorized_operations
        assert operations == 1 << _op.WRITE | 1 << _op.DESCRIBE

    on_guarded_node(tmp_path, scenario)


def test_operations_are_told_as_far_as_they_are_allowed(tmp_path: Path) -> None:
    """Line "authorizedOperations": one bit each; CLUSTER without DESCRIBE: 0."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "mine")
        await node.broker.coordinators.internal_topics.ensure(TopicName("__consumer_offsets"))
        cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await wire.send(cluster)).cluster_authorized_operations == 0
        await grant(
            node,
            on_cluster(_op.ALTER),
            on_group(_op.READ),
            on_topic(_op.ALTER_CONFIGS, "mine"),
            on_topic(_op.DESCRIBE, "mine"),
        )
        told = (await wire.send(cluster)).cluster_authorized_operations
        assert told == 1 << _op.ALTER | 1 << _op.DESCRIBE
        groups = DescribeGroupsRequest(
            groups=(GroupId("billing"),), include_authorized_operations=True
        )
        (group,) = (await wire.send(groups, 5)).groups
        assert group.authorized_operations == 1 << _op.READ | 1 << _op.DESCRIBE
        topics = _named("mine").replace(include_topic_authorized_operations=True)
        (topic,) = (await wire.send(topics)).topics
        assert topic.topic_authorized_operations == (
            1 << _op.DESCRIBE | 1 << _op.ALTER_CONFIGS | 1 << _op.DESCRIBE_CONFIGS
        )

    on_guarded_node(tmp_path, scenario)


def _commit(group: str, topic: str) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=GroupId(group),
        topics=(
            OffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=(OffsetCommitRequestPartition(committed_offset=7),),
            ),
        ),
    )


def test_groups_and_offsets_that_may_not_be_described_are_left_out(tmp_path: Path) -> None:
    """Rows "ListGroups": left out, never an error; "OffsetFetch" of all topics: left out."""

    async def scenario(node: Node, wire: Wire) -> None:
        for topic in ("mine", "hidden"):
            await make_topic(node, topic)
        rights = (
            on_group(_op.READ),
            on_group(_op.READ, "other"),
            on_topic(_op.READ, "mine"),
            on_topic(_op.READ, "hidden"),
        )
        await grant(node, *rights)
        await node.broker.coordinators.internal_topics.ensure(TopicName("__consumer_offsets"))
        for group in ("billing", "other"):
            for topic in ("mine", "hidden"):
                answer = await wire.send(_commit(group, topic), 9)
                assert answer.topics[0].partitions[0].error_code == 0
        await revoke(node)
        assert (await wire.send(ListGroupsRequest())).groups == ()
        await grant(node, on_group(_op.DESCRIBE), on_topic(_op.DESCRIBE, "mine"))
        listed = await wire.send(ListGroupsRequest())
        assert [group.group_id for group in listed.groups] == ["billing"]
        asked = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=GroupId("billing"), topics=None),)
        )
        (found,) = (await wire.send(asked, 9)).groups
        assert [topic.name for topic in found.topics] == ["mine"]
        old = OffsetFetchRequest(group_id=GroupId("billing"), topics=None)
        assert [topic.name for topic in (await wire.send(old, 7)).topics] == ["mine"]
        await grant(node, on_cluster(_op.DESCRIBE))
        assert len((await wire.send(ListGroupsRequest())).groups) == 2

    on_guarded_node(tmp_path, scenario)


def test_transactions_that_may_not_be_described_are_left_out(tmp_path: Path) -> None:
    """Row "ListTransactions": left out."""

    async def scenario(node: Node, wire: Wire) -> None:
        await node.broker.coordinators.internal_topics.ensure(TopicName("__transaction_state"))
        await grant(node, on_transaction(_op.WRITE))
        begun = InitProducerIdRequest(
            transactional_id=TransactionalId("payments"), transaction_timeout_ms=1000
        )
        assert (await wire.send(begun)).error_code == 0
        assert len((await wire.send(ListTransactionsRequest())).transaction_states) == 1
        await revoke(node)
        assert (await wire.send(ListTransactionsRequest())).transaction_states == ()

    on_guarded_node(tmp_path, scenario)


def test_a_deletion_does_not_tell_what_is_there(tmp_path: Path) -> None:
    """Row "DeleteTopics": not describable → 29 even if absent; by id without DESCRIBE: no name."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "hidden")
        await make_topic(node, "seen")
        await grant(
            node, on_topic(_op.DESCRIBE, "seen"), on_topic(_op.DESCRIBE, "absent, but mine")
        )
        states = [
            DeleteTopicState(name=TopicName(name))
            for name in ("hidden", "absent", "seen", "absent, but mine")
        ]
        hidden = node.images.image.topic(TopicName("hidden"))
        assert hidden is not None
        states.append(DeleteTopicState(topic_id=hidden.id))
        request = DeleteTopicsRequest(topics=tuple(states), timeout_ms=1000)
        answer = await wire.send(request)
        told = {(each.name, each.error_code) for each in answer.responses}
        assert told == {
            ("hidden", _TOPIC),
            ("absent", _TOPIC),
            ("seen", _TOPIC),
            ("absent, but mine", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, _TOPIC),
        }
        names = tuple(TopicName(name) for name in ("hidden", "absent, but mine"))
        old = await wire.send(DeleteTopicsRequest(topic_names=names, timeout_ms=1000), 5)
        assert {each.name: each.error_code for each in old.responses} == {
            "hidden": _TOPIC,
            "absent, but mine": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert node.images.image.topic(TopicName("hidden")) is not None
        assert node.images.image.topic(TopicName("seen")) is not None

    on_guarded_node(tmp_path, scenario)


def test_the_settings_of_a_new_topic_are_told_to_who_may_see_them(tmp_path: Path) -> None:
    """Row "CreateTopics": topic_config_error_code 29, counts -1, no configs."""

    async def scenario(node: Node, wire: Wire) -> None:
        await grant(node, on_cluster(_op.CREATE), on_topic(_op.DESCRIBE_CONFIGS, "open"))
        topics = tuple(
            CreatableTopic(name=TopicName(name), num_partitions=3, replication_factor=1)
            for name in ("open", "closed")
        )
        answer = await wire.send(CreateTopicsRequest(topics=topics))
        told = {each.name: each for each in answer.topics}
        assert (told["open"].num_partitions, told["open"].topic_config_error_code) == (3, 0)
        assert told["open"].configs
        closed = told["closed"]
        assert (closed.error_code, closed.topic_config_error_code) == (0, _TOPIC)
        assert (closed.num_partitions, closed.replication_factor, closed.configs) == (-1, -1, ())

    on_guarded_node(tmp_path, scenario)


def _produce(
    *topics: str, records: bytes, acks: int = -1, txn: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        transactional_id=None if txn is None else TransactionalId(txn),
        acks=acks,
        timeout_ms=5_000,
        topic_data=tuple(
            TopicProduceData(name=TopicName(topic), partition_data=(data,)) for topic in topics
        ),
    )


def test_records_go_to_the_topics_that_may_be_written(tmp_path: Path) -> None:
    """Row "Produce": 29 per partition; with acks=0 the connection is closed."""

    async def scenario(node: Node, wire: Wire) -> None:
        for topic in ("mine", "hidden"):
            await make_topic(node, topic)
        await grant(node, on_topic(_op.WRITE, "mine"))
        answer = await wire.send(_produce("hidden", "mine", records=batch(b"x")), 12)
        told = {each.name: each.partition_responses[0].error_code for each in answer.responses}
        assert told == {"mine": 0, "hidden": _TOPIC}
        partitions = node.broker.partitions
        hidden, mine = partitions.get(TopicName("hidden"), 0), partitions.get(TopicName("mine"), 0)
        assert hidden is not None
        assert mine is not None
        assert (hidden.log.log_end_offset, mine.log.log_end_offset) == (0, 1)
        await wire.post(_produce("hidden", "mine", records=batch(b"y"), acks=0), 12)
        assert await wire.is_closed()
        assert (hidden.log.log_end_offset, mine.log.log_end_offset) == (0, 2)

    on_guarded_node(tmp_path, scenario)


def test_transactional_records_need_the_right_to_the_transaction(tmp_path: Path) -> None:
    """Section 8, CVE-2018-17196: 53 for the whole request, also when it names no transaction."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "mine")
        await grant(node, on_topic(_op.WRITE, "mine"))
        builder = BatchBuilder(
            producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        builder.append(1, None, b"x")
        records = bytes(builder.build())
        for name in (None, "payments"):
            answer = await wire.send(_produce("mine", records=records, txn=name), 12)
            code = answer.responses[0].partition_responses[0].error_code
            assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    on_guarded_node(tmp_path, scenario)


def test_one_topic_that_may_not_be_written_keeps_others_out_of_the_transaction(
    tmp_path: Path,
) -> None:
    """Row "AddPartitionsToTxn v0-3": 29 + 55 for the rest."""

    async def scenario(node: Node, wire: Wire) -> None:
        for topic in ("mine", "hidden"):
            await make_topic(node, topic)
        await grant(node, on_transaction(_op.WRITE), on_topic(_op.WRITE, "mine"))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId("payments"),
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=TopicName(name), partitions=(0,))
                for name in ("mine", "hidden")
            ),
        )
        answer = await wire.send(request, 3)
        told = {
            each.name: each.results_by_partition[0].partition_error_code
            for each in answer.results_by_topic_v3_and_below
        }
        assert told == {"mine": ErrorCode.OPERATION_NOT_ATTEMPTED, "hidden": _TOPIC}

    on_guarded_node(tmp_path, scenario)


def test_a_consumer_that_says_it_is_a_replica_reads_nothing(tmp_path: Path) -> None:
    """Section 8, CVE-2018-1288: every partition 29, and nothing of the replica is noted."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "mine")
        await grant(node, on_topic(_op.ALL, "mine"))
        topics = (
            FetchTopic(
                topic=TopicName("mine"), partitions=(FetchPartition(partition_max_bytes=100),)
            ),
        )
        forged = FetchRequest(replica_id=BrokerId(1), max_wait_ms=0, max_bytes=100, topics=topics)
        answer = await wire.send(forged, 12)
        assert answer.responses[0].partitions[0].error_code == _TOPIC
        image = node.images.image.topic(TopicName("mine"))
        assert image is not None
        by_id = (topics[0].replace(topic_id=image.id),)
        newer = forged.replace(
            replica_id=BrokerId(-1),
            replica_state=ReplicaState(replica_id=BrokerId(1)),
            topics=by_id,
        )
        answer = await wire.send(newer)
        assert answer.responses[0].partitions[0].error_code == _TOPIC
        consumer = newer.replace(replica_state=ReplicaState())
        answer = await wire.send(consumer)
        assert answer.responses[0].partitions[0].error_code == 0

    on_guarded_node(tmp_path, scenario)


def test_a_session_is_asked_for_its_rights_with_every_fetch(tmp_path: Path) -> None:
    """Row "Fetch": the partitions of a session are not named again."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "mine")
        await grant(node, on_topic(_op.READ, "mine"))
        topics = (
            FetchTopic(
                topic=TopicName("mine"), partitions=(FetchPartition(partition_max_bytes=100),)
            ),
        )
        begun = FetchRequest(max_wait_ms=0, max_bytes=100, session_epoch=0, topics=topics)
        answer = await wire.send(begun, 12)
        assert answer.responses[0].partitions[0].error_code == 0
        goes_on = FetchRequest(
            max_wait_ms=0, max_bytes=100, session_id=answer.session_id, session_epoch=1
        )
        assert (await wire.send(goes_on, 12)).responses == ()
        await revoke(node)
        answer = await wire.send(goes_on.replace(session_epoch=2), 12)
        assert answer.responses[0].partitions[0].error_code == _TOPIC

    on_guarded_node(tmp_path, scenario)


def test_an_expression_finds_no_topics_that_may_not_be_seen(tmp_path: Path) -> None:
    """Row "ConsumerGroupHeartbeat": by regex: left out."""

    async def scenario(node: Node, wire: Wire) -> None:
        for topic in ("mine", "hidden"):
            await make_topic(node, topic)
        await node.broker.coordinators.internal_topics.ensure(TopicName("__consumer_offsets"))
        await grant(node, on_group(_op.READ), on_topic(_op.READ, "mine"))
        beat = ConsumerGroupHeartbeatRequest(
            group_id=GroupId("billing"),
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_regex=".*(mine|hidden)",
            topic_partitions=(),
        )
        answer = await wire.send(beat)
        assert answer.error_code == 0
        async with asyncio.timeout(20):
            while not (answer.assignment and answer.assignment.topic_partitions):
                again = ConsumerGroupHeartbeatRequest(
                    group_id=GroupId("billing"), member_id="m", member_epoch=answer.member_epoch
                )
                answer = await wire.send(again)
        mine = node.images.image.topic(TopicName("mine"))
        assert mine is not None
        assert [topic.topic_id for topic in answer.assignment.topic_partitions] == [mine.id]

    on_guarded_node(tmp_path, scenario)


def test_settings_of_listeners_are_not_looked_into_for_who_may_not_alter_them(
    tmp_path: Path,
) -> None:
    """Row "AlterConfigs, IncrementalAlterConfigs": 31, and not what is wrong with a file."""
    name, missing = "listener.name.ssl.ssl.keystore.location", str(tmp_path / "missing")
    authority = Authority(tmp_path)
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        **key_store(authority.issue()),
    }
    kind = ResourceType.BROKER

    async def scenario(node: Node, wire: Wire) -> None:
        for of, request in (
            (alter_configs, alter_configs.AlterConfigsRequest),
            (incremental_alter_configs, incremental_alter_configs.IncrementalAlterConfigsRequest),
        ):
            configs = (of.AlterableConfig(name=name, value=missing),)
            resource = of.AlterConfigsResource(
                resource_type=kind, resource_name="1", configs=configs
            )
            asked = request(resources=(resource,), validate_only=True)
            answer = await wire.send(asked)
            (told,) = answer.responses
            assert told.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, told
            assert missing not in told.error_message
            await grant(node, on_cluster(_op.ALTER_CONFIGS))
            answer = await wire.send(asked)
            (told,) = answer.responses
            assert missing in told.error_message
            await revoke(node)

    on_guarded_node(tmp_path, scenario, properties)
