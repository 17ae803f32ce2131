"""Metadata, DescribeCluster and DescribeTopicPartitions."""

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.steps import finish
from dohle.metadata.brokers import fence_broker
from dohle.metadata.queries import (
    MetadataAnswer,
    describe_cluster,
    describe_controllers,
    describe_topic_partitions,
    metadata,
)
from dohle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from dohle.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from dohle.protocol.messages.records.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    RegisterBrokerRecord,
)
from tests.metadata.cluster import CLUSTER_ID, Cluster, cluster, uuid

LATEST = MetadataRequest.VERSIONS.highest


def names(*wanted: str) -> MetadataRequest:
    topics = (MetadataRequestTopic(name=TopicName(name)) for name in wanted)
    return MetadataRequest(topics=tuple(topics))


def of_ids(*ids: Uuid) -> MetadataRequest:
    topics = (MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids)
    return MetadataRequest(topics=tuple(topics))


def ask(
    made: Cluster,
    request: MetadataRequest,
    version: int = LATEST,
    listener: str = "PLAINTEXT",
) -> MetadataAnswer:
    answer = finish(
        metadata(
            made.image,
            request,
            version=version,
            listener=listener,
            cluster_id=CLUSTER_ID,
            controller_id=1,
        )
    )
    encoded = answer.response.encode(version)
    assert MetadataResponse.from_bytes(version, encoded)
    return answer


def found(answer: MetadataAnswer) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in answer.response.topics]


def test_the_answer_has_brokers_topics_and_partitions() -> None:
    made = cluster(2)
    topic_id = made.create_topic("jays", 2, 2).topic_id
    made.create_topic("__consumer_offsets")
    response = ask(made, names("jays", "__consumer_offsets")).response
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (1, "host-1", 9092),
        (2, "host-2", 9092),
    ]
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 1)
    jays, offsets = response.topics
    assert (jays.name, jays.topic_id, jays.is_internal) == ("jays", topic_id, False)
    assert offsets.is_internal
    partition = jays.partitions[1]
    image = made.topic("jays").partitions[1]
    assert (partition.error_code, partition.leader_id) == (0, image.leader)
    assert (partition.replica_nodes, partition.isr_nodes) == (image.replicas, image.isr)
    assert (partition.leader_epoch, partition.offline_replicas) == (0, ())


@pytest.mark.parametrize(
    ("request_", "version", "expected"),
    [
        (MetadataRequest(topics=()), 0, ["crows", "jays"]),
        (MetadataRequest(topics=()), 1, []),
        (MetadataRequest(topics=None), 1, ["crows", "jays"]),
        (MetadataRequest(topics=None), LATEST, ["crows", "jays"]),
    ],
)
def test_all_topics_are_an_empty_list_in_version_0_and_null_since(
    request_: MetadataRequest, version: int, expected: list[str]
) -> None:
    made = cluster()
    made.create_topic("jays")
    made.create_topic("crows")
    answer = ask(made, request_, version)
    assert [topic.name for topic in answer.response.topics] == expected
    assert answer.missing == ()


def test_missing_topics_are_told_and_those_with_bad_names_are_not_to_be_created() -> None:
    made = cluster()
    made.create_topic("jays")
    answer = ask(made, names("jays", "crows", "b a d", "jays"))
    assert found(answer) == [("jays", 0), ("crows", 3), ("b a d", 17)]
    assert answer.missing == ("crows",)


def test_topics_are_found_by_id() -> None:
    made = cluster()
    topic_id = made.create_topic("jays").topic_id
    answer = ask(made, of_ids(topic_id, uuid(999)))
    assert found(answer) == [("jays", 0), (None, 100)]
    assert answer.response.topics[1].topic_id == uuid(999)
    assert answer.missing == ()


@pytest.mark.parametrize(
    ("request_", "version"),
    [(of_ids(uuid(500)), 11), (of_ids(Uuid(bytes(16))), 11), (of_ids(Uuid(bytes(16))), 12)],
)
def test_a_topic_needs_a_name_or_where_it_can_have_one_an_id(
    request_: MetadataRequest, version: int
) -> None:
    with pytest.raises(KafkaError) as refused:
        ask(cluster(), request_, version)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_fenced_brokers_are_left_out_and_their_replicas_are_offline() -> None:
    made = cluster(2)
    made.create_topic("jays", 1, 2)
    made.write(fence_broker(made.image, 2, made.context))
    response = ask(made, names("jays")).response
    assert [each.node_id for each in response.brokers] == [1]
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (0, 1)
    assert partition.offline_replicas == (2,)
    assert set(partition.replica_nodes) == {1, 2}


def test_version_0_leaves_out_replicas_that_cannot_be_reached() -> None:
    made = cluster(2)
    made.create_topic("jays", 1, 2)
    made.write(fence_broker(made.image, 2, made.context))
    partition = ask(made, names("jays"), 0).response.topics[0].partitions[0]
    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))


def test_a_partition_without_leader_says_so() -> None:
    made = cluster()
    made.create_topic("jays")
    made.write(fence_broker(made.image, 1, made.context))
    partition = ask(made, names("jays")).response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (5, -1, 1)
    assert partition.offline_replicas == (1,)


@pytest.mark.parametrize(("version", "code"), [(5, 5), (6, 72)])
def test_a_leader_without_the_listener_is_told_apart_since_version_6(
    version: int, code: int
) -> None:
    made = cluster()
    made.create_topic("jays")
    response = ask(made, names("jays"), version, listener="SSL").response
    assert response.brokers == ()
    assert response.topics[0].partitions[0].error_code == code


def test_a_replica_in_a_lost_directory_is_offline() -> None:
    made = cluster()
    made.create_topic("jays")
    epoch = made.image.brokers[BrokerId(1)].epoch
    made.replay(
        BrokerRegistrationChangeRecord(
            broker_id=BrokerId(1), broker_epoch=epoch, log_dirs=(uuid(777),)
        )
    )
    partition = ask(made, names("jays")).response.topics[0].partitions[0]
    assert partition.offline_replicas == (1,)


def describe(
    made: Cluster, request: DescribeClusterRequest, version: int = 2
) -> DescribeClusterResponse:
    return describe_cluster(
        made.image,
        request,
        version=version,
        listener="PLAINTEXT",
        cluster_id=CLUSTER_ID,
        controller_id=1,
    )


def test_describe_cluster_shows_fenced_brokers_on_demand() -> None:
    made = cluster(2)
    made.write(fence_broker(made.image, 2, made.context))
    response = describe(made, DescribeClusterRequest())
    assert [(each.broker_id, each.host) for each in response.brokers] == [(1, "host-1")]
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 1)
    response = describe(made, DescribeClusterRequest(include_fenced_brokers=True))
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [
        (1, False),
        (2, True),
    ]


def test_a_controller_that_is_not_among_the_brokers_is_not_named() -> None:
    made = Cluster()
    made.replay(RegisterBrokerRecord(broker_id=BrokerId(1)))
    assert describe(made, DescribeClusterRequest()).controller_id == -1


@pytest.mark.parametrize(("kind", "version", "code"), [(2, 1, 114), (7, 1, 115), (2, 0, 42)])
def test_a_broker_does_not_describe_controllers(kind: int, version: int, code: int) -> None:
    request = DescribeClusterRequest(endpoint_type=kind)
    assert describe(cluster(), request, version).error_code == code


HERE = ControllerEndpoint(name="CONTROLLER", host="c1", port=9093)
THERE = ControllerEndpoint(name="OTHER", host="c2", port=9094)


def controllers(
    request: DescribeClusterRequest, version: int = 2, listener: str = "CONTROLLER"
) -> DescribeClusterResponse:
    return describe_controllers(
        [(BrokerId(1), [HERE, THERE]), (BrokerId(2), [THERE]), (BrokerId(3), [HERE])],
        request,
        version=version,
        listener=listener,
        cluster_id=CLUSTER_ID,
        leader_id=BrokerId(2),
    )


def test_a14_controllers_are_described_with_the_endpoints_of_the_listener_that_is_used() -> None:
    """KIP-919: a leader without that listener is not named, because nobody could reach it."""
    asked = DescribeClusterRequest(endpoint_type=2)
    found = controllers(asked)
    told = [(each.broker_id, each.host, each.port) for each in found.brokers]
    assert told == [(1, "c1", 9093), (3, "c1", 9093)]
    assert (found.error_code, found.endpoint_type, found.cluster_id) == (0, 2, CLUSTER_ID)
    assert found.controller_id == -1
    found = controllers(asked, listener="OTHER")
    assert [each.broker_id for each in found.brokers] == [1, 2]
    assert found.controller_id == 2


@pytest.mark.parametrize(("kind", "version", "code"), [(1, 1, 114), (7, 1, 115), (1, 0, 42)])
def test_a_controller_does_not_describe_brokers(kind: int, version: int, code: int) -> None:
    answer = controllers(DescribeClusterRequest(endpoint_type=kind), version)
    assert (answer.error_code, answer.brokers, answer.controller_id) == (code, (), -1)


def with_topics() -> Cluster:
    made = cluster()
    for name, partitions in (("a", 3), ("b", 1), ("c", 3)):
        made.create_topic(name, partitions)
    return made


def page(
    made: Cluster,
    cursor: Cursor | None = None,
    topics: tuple[str, ...] = (),
    limit: int = 2000,
    server_limit: int = 2000,
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=TopicName(name)) for name in topics),
        response_partition_limit=limit,
        cursor=cursor,
    )
    return finish(
        describe_topic_partitions(
            made.image, request, listener="PLAINTEXT", partition_limit=server_limit
        )
    )


def shown(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


def test_topics_are_described_by_name() -> None:
    response = page(with_topics())
    assert shown(response) == [("a", [0, 1, 2]), ("b", [0]), ("c", [0, 1, 2])]
    assert response.next_cursor is None
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.isr_nodes) == (1, (1,))
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


@pytest.mark.parametrize(("limit", "server_limit"), [(2, 2000), (2000, 2)])
def test_pages_follow_each_other_by_cursor(limit: int, server_limit: int) -> None:
    made = with_topics()
    pages = []
    cursor = None
    while True:
        response = page(made, cursor, limit=limit, server_limit=server_limit)
        pages.append(shown(response))
        cursor = response.next_cursor
        if cursor is None:
            break
    assert pages == [
        [("a", [0, 1])],
        [("a", [2]), ("b", [0])],
        [("c", [0, 1])],
        [("c", [2])],
    ]


def test_a_limit_of_nothing_is_a_limit_of_one() -> None:
    assert shown(page(with_topics(), limit=0)) == [("a", [0])]


def test_topics_asked_for_by_name_may_be_missing() -> None:
    response = page(with_topics(), topics=("c", "b", "x", "b a d"))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("b", 0),
        ("b a d", 17),
        ("c", 0),
        ("x", 3),
    ]


def test_a_topic_deleted_between_two_pages_is_passed_over() -> None:
    cursor = Cursor(topic_name=TopicName("bb"), partition_index=4)
    assert shown(page(with_topics(), cursor)) == [("c", [0, 1, 2])]


@pytest.mark.parametrize(
    "cursor",
    [
        Cursor(topic_name=TopicName("b"), partition_index=0),
        Cursor(topic_name=TopicName("a"), partition_index=-1),
    ],
)
def test_a_cursor_must_point_at_what_was_asked_for(cursor: Cursor) -> None:
    with pytest.raises(KafkaError) as refused:
        page(with_topics(), cursor, topics=("a", "c"))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
