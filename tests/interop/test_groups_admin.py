"""Administration of groups through confluent-kafka's and kafka-python's admin clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from typing import Any

import confluent_kafka
import kafka
import kafka.admin
import kafka.errors
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType

from tests.interop.group_consumers import Joining, Place, joined
from tests.interop.members import Member, await_settled, await_values, places_of
from tests.interop.quick_broker import fresh, new_topic, serving, write

# The module re-exports its classes in a way that a type checker does not follow.
admin_api: Any = import_module("confluent_kafka.admin")

PARTITIONS = 2


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("admin")) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def confluent(bootstrap: str) -> Any:
    return admin_api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture(scope="module")
def kafka_python(bootstrap: str) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = new_topic(bootstrap, PARTITIONS)
    for partition in range(PARTITIONS):
        write(bootstrap, name, [b"%d" % number for number in range(10)], partition)
    return name


@pytest.fixture
def empty_group(bootstrap: str, topic: str) -> str:
    """A group that has had a member, and has read everything."""
    joining = Joining("confluent", bootstrap, fresh("group"), (topic,), commits_when_revoked=True)
    with Member(joining) as member:
        await_settled([member], places_of(topic, PARTITIONS))
        await_values([member], [b"9"])
    with closing(joined(joining)) as consumer:
        consumer.commit({Place(topic, partition): 10 for partition in range(PARTITIONS)})
    return joining.group


def error_of(future: Any) -> int:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        future.result(20)
    return int(caught.value.args[0].code())


def test_a_group_with_members_is_listed_and_described(
    bootstrap: str, confluent: Any, kafka_python: Any, topic: str
) -> None:
    joining = Joining(
        "confluent", bootstrap, fresh("group"), (topic,), instance_id="static", strategy="range"
    )
    with Member(joining) as member:
        await_settled([member], places_of(topic, PARTITIONS))

        listed = confluent.list_consumer_groups().result(20)
        assert listed.errors == []
        (found,) = [group for group in listed.valid if group.group_id == joining.group]
        assert (found.state, found.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
        assert not found.is_simple_consumer_group
        found = confluent.describe_consumer_groups([joining.group])[joining.group].result(20)
        assert found.state == ConsumerGroupState.STABLE
        assert found.partition_assignor == "range"
        (described,) = found.members
        assert described.group_instance_id == "static"
        assert described.host == "/127.0.0.1"
        assigned = {(part.topic, part.partition) for part in described.assignment.topic_partitions}
        assert assigned == places_of(topic, PARTITIONS)

        (listed,) = [
            group for group in kafka_python.list_groups() if group["group_id"] == joining.group
        ]
        assert (listed["protocol_type"], listed["group_state"]) == ("consumer", "Stable")
        assert listed["group_type"] == "classic"
        found = kafka_python.describe_groups([joining.group])[joining.group]
        assert (found["group_state"], found["protocol_data"]) == ("Stable", "range")
        (described,) = found["members"]
        assert described["group_instance_id"] == "static"
        assert described["member_metadata"]["topics"] == [topic]


def test_groups_are_listed_by_state_and_type(
    bootstrap: str, confluent: Any, kafka_python: Any, topic: str, empty_group: str
) -> None:
    def by_confluent(**filters: Any) -> set[str]:
        found = confluent.list_consumer_groups(**filters).result(20)
        return {group.group_id for group in found.valid}

    def by_kafka_python(**filters: Any) -> set[str]:
        return {group["group_id"] for group in kafka_python.list_groups(**filters)}

    joining = Joining("aiokafka", bootstrap, fresh("group"), (topic,))
    with Member(joining) as member:
        await_settled([member], places_of(topic, PARTITIONS))
        stable = by_confluent(states={ConsumerGroupState.STABLE})
        assert joining.group in stable
        assert empty_group not in stable
        assert stable == by_kafka_python(states_filter=["Stable"])
        empty = by_confluent(states={ConsumerGroupState.EMPTY})
        assert empty_group in empty
        assert joining.group not in empty
        assert by_confluent(types={ConsumerGroupType.CONSUMER}) == set()
        assert joining.group in by_confluent(types={ConsumerGroupType.CLASSIC})
        assert {joining.group, empty_group} <= by_kafka_python(types_filter=["classic"])
        assert by_kafka_python(types_filter=["consumer"]) == set()


def test_offsets_are_listed_altered_and_deleted_by_confluent(
    confluent: Any, topic: str, empty_group: str
) -> None:
    def offsets() -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(empty_group)
        found = confluent.list_consumer_group_offsets([asked])[empty_group].result(20)
        return {part.partition: part.offset for part in found.topic_partitions}

    assert offsets() == {0: 10, 1: 10}
    altered = [confluent_kafka.TopicPartition(topic, 1, 5)]
    request = ConsumerGroupTopicPartitions(empty_group, altered)
    confluent.alter_consumer_group_offsets([request])[empty_group].result(20)
    assert offsets() == {0: 10, 1: 5}


def test_offsets_are_listed_altered_reset_and_deleted_by_kafka_python(
    kafka_python: Any, topic: str, empty_group: str
) -> None:
    first, second = (kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS))

    def offsets() -> dict[Any, int]:
        found = kafka_python.list_group_offsets(empty_group)[empty_group]
        return {partition: value.offset for partition, value in found.items()}

    assert offsets() == {first: 10, second: 10}
    altered = {first: kafka.OffsetAndMetadata(3, "noted", -1)}
    results = kafka_python.alter_group_offsets(empty_group, altered)
    assert results == {first: kafka.errors.NoError}
    assert offsets() == {first: 3, second: 10}
    found = kafka_python.list_group_offsets({empty_group: [first]})[empty_group]
    assert found[first].metadata == "noted"

    kafka_python.reset_group_offsets(empty_group, {second: kafka.OffsetSpec.EARLIEST})
    assert offsets() == {first: 3, second: 0}

    results = kafka_python.delete_group_offsets(empty_group, [first])
    assert results == {first: kafka.errors.NoError}
    assert offsets() == {second: 0}


def test_offsets_in_use_are_neither_altered_nor_deleted(
    bootstrap: str, confluent: Any, kafka_python: Any, topic: str
) -> None:
    joining = Joining("confluent", bootstrap, fresh("group"), (topic,))
    with Member(joining) as member:
        await_settled([member], places_of(topic, PARTITIONS))
        member.ask(lambda consumer: consumer.commit({Place(topic, 0): 5}))
        partition = kafka.TopicPartition(topic, 0)

        altered = [confluent_kafka.TopicPartition(topic, 0, 1)]
        request = ConsumerGroupTopicPartitions(joining.group, altered)
        future = confluent.alter_consumer_group_offsets([request])[joining.group]
        found = future.result(20)
        assert [part.error.code() for part in found.topic_partitions] == [
            confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID
        ]
        results = kafka_python.delete_group_offsets(joining.group, [partition])
        assert results == {partition: kafka.errors.GroupSubscribedToTopicError}
        assert member.ask(lambda consumer: consumer.committed(Place(topic, 0))) == 5


def test_an_empty_group_is_deleted(confluent: Any, empty_group: str, topic: str) -> None:
    confluent.delete_consumer_groups([empty_group])[empty_group].result(20)

    found = confluent.list_consumer_groups().result(20)
    assert empty_group not in {group.group_id for group in found.valid}
    asked = ConsumerGroupTopicPartitions(empty_group, [confluent_kafka.TopicPartition(topic, 0)])
    offsets = confluent.list_consumer_group_offsets([asked])[empty_group].result(20)
    assert [part.offset for part in offsets.topic_partitions] == [confluent_kafka.OFFSET_INVALID]
    again = confluent.delete_consumer_groups([empty_group])[empty_group]
    assert error_of(again) == confluent_kafka.KafkaError.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted_until_they_are_removed(
    bootstrap: str, confluent: Any, kafka_python: Any, topic: str
) -> None:
    joining = Joining("kafka-python", bootstrap, fresh("group"), (topic,), instance_id="static")
    with Member(joining) as member:
        await_settled([member], places_of(topic, PARTITIONS))
        refused = confluent.delete_consumer_groups([joining.group])[joining.group]
        assert error_of(refused) == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    # A static member stays when its client goes.
    members = [kafka.admin.MemberToRemove(group_instance_id="static")]
    kafka_python.remove_group_members(joining.group, members)
    kafka_python.delete_groups([joining.group])
    assert joining.group not in {group["group_id"] for group in kafka_python.list_groups()}
