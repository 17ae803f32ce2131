"""What an admin sends, to whom, and what it makes of the answers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from dohle.client.admin.admin import Admin
from dohle.client.admin.cluster_values import BrokerDescription, ClusterDescription
from dohle.client.admin.config_values import (
    AlterOp,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
)
from dohle.client.admin.log_dir_values import ReplicaDescription
from dohle.client.admin.topic_values import EligibleLeaders, NewTopic
from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig
from dohle.client.consumer.starts import Beginning, End, EndStart, MaxTimestamp, Since
from dohle.client.errors import TimedOut
from dohle.core.config.definition import ConfigType
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import SystemHost
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
    list_offsets,
)
from dohle.protocol.messages.api_versions import (
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from dohle.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tests.client.offset_answers import offsets_answer
from tests.client.scripted_broker import HANG_UP, SILENCE, Reply, ScriptedCluster, within

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=4, api_timeout_ms=10_000)
TOPIC = ConfigResource(ResourceType.TOPIC, "t")
T0, T1 = (TopicPartition(TopicName("t"), number) for number in range(2))


@asynccontextmanager
async def scene(
    *, brokers: int = 2, partitions: int = 2, config: ClientConfig = CONFIG
) -> AsyncIterator[tuple[ScriptedCluster, Admin]]:
    async with (
        ScriptedCluster(brokers, topics={"t": partitions}) as scripted,
        Cluster(scripted.bootstrap, config, host=SystemHost(rng=random.Random(4))) as cluster,
    ):
        yield scripted, Admin(cluster)


def test_topics_are_created_each_with_its_own_result() -> None:
    async def body() -> None:
        async with scene() as (scripted, admin):

            def answer(request: create_topics.CreateTopicsRequest, version: int) -> Reply:
                return create_topics.CreateTopicsResponse(
                    topics=(
                        create_topics.CreatableTopicResult(
                            name=TopicName("new"),
                            topic_id=Uuid(b"n" * 16),
                            num_partitions=3,
                            replication_factor=1,
                            configs=(
                                create_topics.CreatableTopicConfigs(
                                    name="retention.ms", value="5", config_source=1
                                ),
                            ),
                        ),
                        create_topics.CreatableTopicResult(
                            name=TopicName("old"),
                            error_code=ErrorCode.TOPIC_ALREADY_EXISTS,
                            error_message="it is there",
                        ),
                    )
                )

            scripted.serve(ApiKey.CREATE_TOPICS, answer)
            new = NewTopic("new", partitions=3, configs={"retention.ms": "5"})
            old = NewTopic("old", assignments={0: [1, 2]})
            results = await admin.create_topics([new, old], validate_only=True)
            created = results.done[TopicName("new")]
            assert (created.partitions, created.replication_factor) == (3, 1)
            assert created.topic_id == b"n" * 16
            assert created.configs == (
                ConfigEntry("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            )
            error = results.errors[TopicName("old")]
            assert str(error) == "TOPIC_ALREADY_EXISTS: topic old: it is there"
            with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
                results.ok()
            (request,) = scripted[1].asked(ApiKey.CREATE_TOPICS)
            assert request.validate_only
            assert [topic.num_partitions for topic in request.topics] == [3, -1]
            assert request.topics[0].configs[0].value == "5"
            assert request.topics[1].assignments[0].broker_ids == (1, 2)

    within(10, body())


def test_another_controller_is_asked_when_the_first_is_none_any_more() -> None:
    async def body() -> None:
        async with scene() as (scripted, admin):

            def answer(code: ErrorCode) -> Reply:
                result = create_topics.CreatableTopicResult(name=TopicName("x"), error_code=code)
                return create_topics.CreateTopicsResponse(topics=(result,))

            def resign(request: object, version: int) -> Reply:
                scripted.controller_id = 2
                return answer(ErrorCode.NOT_CONTROLLER)

            scripted[1].serve(ApiKey.CREATE_TOPICS, resign)
            scripted[2].serve(ApiKey.CREATE_TOPICS, lambda request, version: answer(ErrorCode.NONE))
            assert (await admin.create_topics([NewTopic("x")])).one().name == "x"
            assert len(scripted.asked(ApiKey.CREATE_TOPICS)) == 2

    within(10, body())


@pytest.mark.parametrize("version", [1, 5, 6])
def test_topics_are_deleted_by_name_in_old_and_new_versions(version: int) -> None:
    async def body() -> None:
        async with scene() as (scripted, admin):

            def answer(request: delete_topics.DeleteTopicsRequest, version: int) -> Reply:
                by_state = tuple(topic.name or TopicName("") for topic in request.topics)
                names = request.topic_names or by_state
                codes = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return delete_topics.DeleteTopicsResponse(
                    responses=tuple(
                        delete_topics.DeletableTopicResult(name=name, error_code=code)
                        for name, code in zip(names, codes, strict=True)
                    )
                )

            scripted.serve(ApiKey.DELETE_TOPICS, answer, (1, version))
            results = await admin.delete_topics(["a", "b"])
            assert results.done == {"a": None}
            code = results.errors[TopicName("b")].code
            assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    within(10, body())


def test_topics_are_listed_and_described() -> None:
    async def body() -> None:
        async with scene() as (scripted, admin):
            scripted.topics["other"] = scripted.topics["t"]
            assert set(await admin.list_topics()) == {"t", "other"}
            results = await admin.describe_topics(["t", "nothing"])
            partition = results.done[TopicName("t")].partitions[1]
            assert (partition.leader_id, partition.leader_epoch) == (2, 5)
            assert partition.replicas == partition.isr == (1, 2)
            code = results.errors[TopicName("nothing")].code
            assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert not any(
                request.allow_auto_topic_creation for request in scripted.asked(ApiKey.METADATA)
            )

    within(10, body())


def test_who_else_may_lead_is_asked_for_page_by_page() -> None:
    async def body() -> None:
        async with scene() as (scripted, admin):

            def answer(asked: DescribeTopicPartitionsRequest, version: int) -> Reply:
                index = 0 if asked.cursor is None else asked.cursor.partition_index
                found = DescribeTopicPartitionsResponsePartition(
                    partition_index=index,
                    eligible_leader_replicas=(BrokerId(index + 1),),
                    last_known_elr=None if index else (BrokerId(9),),
                )
                name = asked.topics[0].name
                topic = DescribeTopicPartitionsResponseTopic(name=name, partitions=(found,))
                following = Cursor(topic_name=name, partition_index=index + 1)
                return DescribeTopicPartitionsResponse(
                    topics=(topic,), next_cursor=None if index else following
                )

            scripted.serve(ApiKey.DESCRIBE_TOPIC_PARTITIONS, answer)
            found = await admin.describe_eligible_leaders(["t"])
            assert found == {
                T0: EligibleLeaders((BrokerId(1),), (BrokerId(9),)),
                T1: EligibleLeaders((BrokerId(2),), ()),
            }
            assert await admin.describe_eligible_leaders([]) == {}

    within(10, body())


def test_partitions_are_added() -> None:
    async def body() -> None:
        async with scene() as (scripted, admin):

            def answer(request: create_partitions.CreatePartitionsRequest, version: int) -> Reply:
                return create_partitions.CreatePartitionsResponse(
                    results=tuple(
                        create_partitions.CreatePartitionsTopicResult(name=topic.name)
                        for topic in request.topics
                    )
                )

            scripted.serve(ApiKey.CREATE_PARTITIONS, answer)
            results = await admin.create_partitions({"t": 3, "u": 2}, assignments={"u": [[1, 2]]})
            assert results.ok() == {"t": None, "u": None}
            (request,) = scripted.asked(ApiKey.CREATE_PARTITIONS)
            assert [topic.count for topic in request.topics] == [3, 2]
            assert request.topics[0].assignments is None
            assert request.topics[1].assignments[0].broker_ids == (1, 2)

    within(10, body())


def test_offsets_are_asked_of_each_leader() -> None:
    async def body() -> None:
        async with scene(partitions=4) as (scripted, admin):
            scripted.serve(ApiKey.LIST_OFFSETS, offsets_answer)
            starts: list[EndStart] = [Beginning(), End(), MaxTimestamp(), Since(77)]
            results = await admin.list_offsets(
                {TopicPartition(TopicName("t"), n): start for n, start in enumerate(starts)}
            )
            found = {key.partition: value.offset for key, value in results.ok().items()}
            assert found == {0: 998, 1: 999, 2: 997, 3: 1077}
            assert all(value.leader_epoch == 5 for value in results.done.values())
            for broker, partitions in ((1, [0, 2]), (2, [1, 3])):
                (request,) = scripted[broker].asked(ApiKey.LIST_OFFSETS)
                assert [each.partition_index for each in request.topics[0].partitions] == partitions

    within(10, body())


def test_a_leader_that_hangs_is_not_waited_for_when_its_partitions_have_moved() -> None:
    async def body() -> None:
        config = replace(CONFIG, request_timeout_ms=60_000, api_timeout_ms=4_000)
        async with scene(partitions=2, config=config) as (scripted, admin):

            def hang(request: list_offsets.ListOffsetsRequest, version: int) -> Reply:
                scripted.topics["t"].leaders[1] = (1, 6)
                return SILENCE

            scripted.serve(ApiKey.LIST_OFFSETS, offsets_answer)
            scripted[2].serve(ApiKey.LIST_OFFSETS, hang)
            keys = [TopicPartition(TopicName("t"), number) for number in range(2)]
            found = (await admin.list_offsets(dict.fromkeys(keys, End()))).ok()
            assert {key: info.leader_epoch for key, info in found.items()} == {
                keys[0]: 5,
                keys[1]: 6,
            }

    within(20, body())


def test_what_leaders_have_answered_is_kept_if_another_one_hangs() -> None:
    async def body() -> None:
        async with scene(partitions=2) as (scripted, admin):
            scripted.serve(ApiKey.LIST_OFFSETS, offsets_answer)
            scripted[2].serve(ApiKey.LIST_OFFSETS, lambda request, version: SILENCE)
            keys = [TopicPartition(TopicName("t"), number) for number in range(2)]
            results = await admin.list_offsets(dict.fromkeys(keys, End()), timeout_ms=3_000)
            assert results.done.keys() == {keys[0]}
            assert "broker 2 did not answer within 1.5 s" in str(results.errors[keys[1]])

    within(20, body())


def test_without_an_active_controller_it_is_told_who_was_reached() -> None:
    async def body() -> None:
        config = replace(CONFIG, api_timeout_ms=500)
        async with scene(brokers=1, config=config) as (scripted, admin):
            for key in (ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_QUORUM):
                scripted.serve(key, lambda request, version: SILENCE)
            for asking in (admin.create_topics([NewTopic("new")]), admin.describe_quorum()):
                with pytest.raises(TimedOut, match="active controller") as caught:
                    await asking
                assert f"reached {scripted.bootstrap}" in str(caught.value)

    within(20, body())


def test_only_partitions_with_a_passing_error_are_asked_for_again() -> None:
    async def body() -> None:
        async with scene(brokers=1) as (scripted, admin):
            codes = {0: [ErrorCode.NONE], 1: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]}

            def answer(request: delete_records.DeleteRecordsRequest, version: int) -> Reply:
                return delete_records.DeleteRecordsResponse(
                    topics=tuple(
                        delete_records.DeleteRecordsTopicResult(
                            name=topic.name,
                            partitions=tuple(
                                delete_records.DeleteRecordsPartitionResult(
                                    partition_index=each.partition_index,
                                    low_watermark=each.offset,
                                    error_code=codes[each.partition_index].pop(0),
                                )
                                for each in topic.partitions
                            ),
                        )
                        for topic in request.topics
                    )
                )

            scripted.serve(ApiKey.DELETE_RECORDS, answer)
            assert (await admin.delete_records({T0: 5, T1: 9})).ok() == {T0: 5, T1: 9}
            assert len(scripted.asked(ApiKey.DELETE_RECORDS)) == 2

    within(10, body())


def test_an_unknown_partition_and_a_lasting_error_spoil_only_themselves() -> None:
    async def body() -> None:
        async with scene(brokers=1) as (scripted, admin):

            def answer(request: delete_records.DeleteRecordsRequest, version: int) -> Reply:
                (topic,) = request.topics
                return delete_records.DeleteRecordsResponse(
                    topics=(
                        delete_records.DeleteRecordsTopicResult(
                            name=topic.name,
                            partitions=tuple(
                                delete_records.DeleteRecordsPartitionResult(
                                    partition_index=each.partition_index,
                                    low_watermark=7,
                                    error_code=each.partition_index and ErrorCode.POLICY_VIOLATION,
                                )
                                for each in topic.partitions
                            ),
                        ),
                    )
                )

            scripted.serve(ApiKey.DELETE_RECORDS, answer)
            unknown = TopicPartition(TopicName("t"), 9)
            results = await admin.delete_records({T0: -1, T1: -1, unknown: -1})
            assert results.done == {T0: 7}
            assert {key: error.code for key, error in results.errors.items()} == {
                T1: ErrorCode.POLICY_VIOLATION,
                unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }

    within(10, body())


def described(request: describe_configs.DescribeConfigsRequest, version: int) -> Reply:
    return describe_configs.DescribeConfigsResponse(
        results=tuple(
            describe_configs.DescribeConfigsResult(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                error_message=None,
                configs=(
                    describe_configs.DescribeConfigsResourceResult(
                        name="retention.ms",
                        value="5",
                        config_source=1,
                        config_type=5,
                        documentation="How long.",
                        synonyms=(
                            describe_configs.DescribeConfigsSynonym(
                                name="log.retention.ms", value="9", source=4
                            ),
                        ),
                    ),
                ),
            )
            for each in request.resources
        )
    )


def test_configs_are_asked_of_the_broker_they_belong_to() -> None:
    async def body() -> None:
        async with scene() as (scripted, admin):
            scripted.serve(ApiKey.DESCRIBE_CONFIGS, described)
            second = ConfigResource(ResourceType.BROKER, "2")
            default = ConfigResource(ResourceType.BROKER, "")
            gone = ConfigResource(ResourceType.BROKER, "9")
            results = await admin.describe_configs(
                [TOPIC, second, default, gone],
                names=["retention.ms"],
                include_synonyms=True,
                include_documentation=True,
            )
            assert results.done[TOPIC] == (
                ConfigEntry(
                    "retention.ms",
                    "5",
                    ConfigSource.DYNAMIC_TOPIC_CONFIG,
                    type=ConfigType.LONG,
                    documentation="How long.",
                    synonyms=(
                        ConfigSynonym("log.retention.ms", "9", ConfigSource.STATIC_BROKER_CONFIG),
                    ),
                ),
            )
            assert set(results.done) == {TOPIC, second, default}
            assert results.errors[gone].code is ErrorCode.BROKER_ID_NOT_REGISTERED
            (request,) = scripted[2].asked(ApiKey.DESCRIBE_CONFIGS)
            assert [each.resource_name for each in request.resources] == ["2"]
            assert request.resources[0].configuration_keys == ("retention.ms",)
            with pytest.raises(KafkaError, match="a broker's id is a number"):
                await admin.describe_configs([ConfigResource(ResourceType.BROKER, "two")])

    within(10, body())


def test_configs_of_an_old_broker_have_only_their_values() -> None:
    async def body() -> None:
        async with scene(brokers=1) as (scripted, admin):
            scripted.serve(ApiKey.DESCRIBE_CONFIGS, described, (1, 1))
            results = await admin.describe_configs([TOPIC], include_documentation=True)
            (entry,) = results.one()
            assert (entry.value, entry.documentation) == ("5", "")
            assert not entry.is_default

    within(10, body())


def test_configs_are_changed_one_by_one_or_replaced() -> None:
    async def body() -> None:
        async with scene(brokers=1) as (scripted, admin):

            def change(
                request: incremental_alter_configs.IncrementalAlterConfigsRequest, version: int
            ) -> Reply:
                result = incremental_alter_configs.AlterConfigsResourceResponse(
                    resource_type=2,
                    resource_name="t",
                    error_code=ErrorCode.INVALID_CONFIG,
                    error_message="no such config",
                )
                return incremental_alter_configs.IncrementalAlterConfigsResponse(
                    responses=(result,)
                )

            def replace(request: alter_configs.AlterConfigsRequest, version: int) -> Reply:
                result = alter_configs.AlterConfigsResourceResponse(
                    resource_type=2, resource_name="t", error_message=None
                )
                return alter_configs.AlterConfigsResponse(responses=(result,))

            scripted.serve(ApiKey.INCREMENTAL_ALTER_CONFIGS, change)
            scripted.serve(ApiKey.ALTER_CONFIGS, replace)
            changes = [ConfigChange("a", AlterOp.SET, "1"), ConfigChange("b", AlterOp.DELETE)]
            results = await admin.incremental_alter_configs({TOPIC: changes}, validate_only=True)
            text = "INVALID_CONFIG: configs of topic t: no such config"
            assert str(results.errors[TOPIC]) == text
            (request,) = scripted.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)
            assert request.validate_only
            assert [
                (each.name, each.config_operation, each.value)
                for each in request.resources[0].configs
            ] == [("a", 0, "1"), ("b", 1, None)]
            assert (await admin.alter_configs({TOPIC: {"a": "2"}})).ok() == {TOPIC: None}
            (request,) = scripted.asked(ApiKey.ALTER_CONFIGS)
            assert request.resources[0].configs[0].value == "2"

    within(10, body())


def test_the_cluster_is_described_with_or_without_a_request_of_its_own() -> None:
    async def body() -> None:
        async with scene() as (scripted, admin):
            before = await admin.describe_cluster()
            assert (before.cluster_id, before.controller_id) == ("scripted", 1)
            assert [broker.node_id for broker in before.brokers] == [1, 2]

        def answer(request: describe_cluster.DescribeClusterRequest, version: int) -> Reply:
            broker = describe_cluster.DescribeClusterBroker(
                broker_id=BrokerId(2), host="h", port=1, rack="r", is_fenced=True
            )
            return describe_cluster.DescribeClusterResponse(
                cluster_id="asked", controller_id=BrokerId(2), brokers=(broker,)
            )

        async with scene() as (scripted, admin):
            scripted.serve(ApiKey.DESCRIBE_CLUSTER, answer)
            assert await admin.describe_cluster(include_fenced=True) == ClusterDescription(
                "asked", BrokerId(2), (BrokerDescription(BrokerId(2), "h", 1, "r", is_fenced=True),)
            )
            requests = scripted.asked(ApiKey.DESCRIBE_CLUSTER)
            assert [request.include_fenced_brokers for request in requests] == [True]

    within(10, body())


def test_log_dirs_are_asked_of_every_broker() -> None:
    async def body() -> None:
        async with scene() as (scripted, admin):

            def answer(request: describe_log_dirs.DescribeLogDirsRequest, version: int) -> Reply:
                partition = describe_log_dirs.DescribeLogDirsPartition(
                    partition_index=1, partition_size=10, offset_lag=2, is_future_key=True
                )
                topic = describe_log_dirs.DescribeLogDirsTopic(
                    name=TopicName("t"), partitions=(partition,)
                )
                good = describe_log_dirs.DescribeLogDirsResult(
                    log_dir="/good", topics=(topic,), total_bytes=100, usable_bytes=50
                )
                bad = describe_log_dirs.DescribeLogDirsResult(
                    log_dir="/bad", error_code=ErrorCode.KAFKA_STORAGE_ERROR
                )
                return describe_log_dirs.DescribeLogDirsResponse(results=(good, bad))

            def refuse(request: object, version: int) -> Reply:
                return describe_log_dirs.DescribeLogDirsResponse(
                    error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                )

            scripted[1].serve(ApiKey.DESCRIBE_LOG_DIRS, answer)
            scripted[2].serve(ApiKey.DESCRIBE_LOG_DIRS, refuse)
            results = await admin.describe_log_dirs()
            good, bad = results.done[BrokerId(1)]
            assert good.replicas == (ReplicaDescription(T1, 10, 2, is_future=True),)
            assert (good.path, good.error, good.total_bytes, good.usable_bytes) == (
                "/good",
                None,
                100,
                50,
            )
            assert str(bad.error) == "KAFKA_STORAGE_ERROR: /bad"
            code = results.errors[BrokerId(2)].code
            assert code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            only = await admin.describe_log_dirs([1], topics={"t": [1]})
            assert set(only.done) == {1}
            last = scripted[1].asked(ApiKey.DESCRIBE_LOG_DIRS)[-1]
            assert last.topics[0].partitions == (1,)

    within(10, body())


def test_features_are_asked_for_each_time() -> None:
    async def body() -> None:
        async with scene(brokers=1) as (scripted, admin):
            level = 0

            def answer(request: object, version: int) -> Reply:
                nonlocal level
                level += 1
                return ApiVersionsResponse(
                    api_keys=scripted[1].api_keys(),
                    supported_features=(
                        SupportedFeatureKey(name="metadata.version", min_version=7, max_version=29),
                    ),
                    finalized_features=(
                        FinalizedFeatureKey(
                            name="metadata.version", min_version_level=7, max_version_level=level
                        ),
                    ),
                    finalized_features_epoch=31,
                )

            scripted[1].serve(ApiKey.API_VERSIONS, answer)
            for expected in (2, 3):
                features = await admin.describe_features()
                assert features.supported == {"metadata.version": (7, 29)}
                assert features.finalized == {"metadata.version": (7, expected)}
                assert features.finalized_epoch == 31

    within(10, body())


def test_a_request_is_sent_again_when_the_connection_is_lost() -> None:
    async def body() -> None:
        async with scene(brokers=1) as (scripted, admin):
            tries = 0

            def unsteady(request: delete_topics.DeleteTopicsRequest, version: int) -> Reply:
                nonlocal tries
                tries += 1
                if tries < 3:
                    return HANG_UP
                result = delete_topics.DeletableTopicResult(name=TopicName("t"))
                return delete_topics.DeleteTopicsResponse(responses=(result,))

            scripted.serve(ApiKey.DELETE_TOPICS, unsteady)
            assert (await admin.delete_topics(["t"])).ok() == {"t": None}
            assert tries == 3

    within(10, body())
