"""What an admin sees of groups and transactions, on a real broker."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from dohle.client import (
    Admin,
    Cluster,
    Consumer,
    GroupType,
    OffsetAndMetadata,
    Producer,
    ProducerConfig,
)
from dohle.core.errors import ErrorCode, KafkaError
from tests.client.group.group_setup import GROUP, make_topic, poll_until, write
from tests.client.scripted_broker import within


def test_groups_are_listed_by_state_and_type(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            admin = Admin(cluster)
            idle, busy = f"idle-{topic}", f"busy-{topic}"
            await admin.alter_group_offsets(idle, {partition: OffsetAndMetadata(0)})
            async with Consumer(cluster, replace(GROUP, group_id=busy)) as consumer:
                await consumer.subscribe([topic])
                await poll_until(lambda _: len(consumer.assignment) == 1, consumer)
                found = {str(each.group_id): each for each in await admin.list_groups()}
                assert (found[busy].state, found[busy].type) == ("Stable", GroupType.CLASSIC)
                assert found[idle].state == "Empty"
                stable = {each.group_id for each in await admin.list_groups(states=["Stable"])}
                assert busy in stable
                assert idle not in stable
                consumer_groups = await admin.list_groups(types=["consumer"])
                assert busy not in {each.group_id for each in consumer_groups}

    within(60, body())


def test_a_group_is_described_with_what_each_member_reads(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 2)
            config = replace(GROUP, group_id=topic, group_instance_id="one")
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic])
                await poll_until(lambda _: len(consumer.assignment) == 2, consumer)
                described = (await Admin(cluster).describe_groups([topic])).one()
                assert (described.type, described.state) == (GroupType.CLASSIC, "Stable")
                assert (described.protocol_type, described.assignor) == ("consumer", "range")
                assert described.coordinator_id == 1
                (member,) = described.members
                assert member.member_id == consumer.group_metadata().member_id
                assert member.instance_id == "one"
                assert (member.client_id, member.host) == ("dohle", "/127.0.0.1")
                assert member.assignment == partitions
                assert member.subscribed_topics == (topic,)

    within(60, body())


def test_a_group_that_does_not_exist_is_an_error_of_its_own(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            admin = Admin(cluster)
            await admin.alter_group_offsets(topic, {partition: OffsetAndMetadata(0)})
            results = await admin.describe_groups([topic, f"no-{topic}"])
            assert results.done.keys() == {topic}
            assert results.errors[f"no-{topic}"].code is ErrorCode.GROUP_ID_NOT_FOUND
            deleted = await admin.delete_groups([topic, f"no-{topic}"])
            assert deleted.done.keys() == {topic}
            assert deleted.errors[f"no-{topic}"].code is ErrorCode.GROUP_ID_NOT_FOUND
            assert (await admin.list_group_offsets(topic)).ok() == {}

    within(60, body())


def test_the_offsets_of_a_living_group_are_its_own(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, [partition], range(3))
            admin = Admin(cluster)
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.subscribe([topic])
                await poll_until(lambda items: len(items) == 3, consumer)
                with pytest.raises(KafkaError, match="stop its consumers first") as raised:
                    await admin.alter_group_offsets(topic, {partition: OffsetAndMetadata(0)})
                assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID
                deleted = await admin.delete_groups([topic])
                assert deleted.errors[topic].code is ErrorCode.NON_EMPTY_GROUP
                await consumer.commit()
                refused = await admin.delete_group_offsets(topic, [partition])
                assert refused.errors[partition].code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            await admin.alter_group_offsets(topic, {partition: OffsetAndMetadata(1)})
            assert (await admin.list_group_offsets(topic)).one().offset == 1
            (await admin.delete_group_offsets(topic, [partition])).ok()
            assert (await admin.list_group_offsets(topic, [partition])).ok() == {}

    within(60, body())


def test_an_open_transaction_is_seen_from_both_sides(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, [partition], range(5))
            admin = Admin(cluster)
            config = ProducerConfig(transactional_id=topic)
            async with Producer(cluster, config) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await producer.send_soon(topic, b"", partition=0)
                await producer.flush()
                described = (await admin.describe_transactions([topic])).one()
                assert (described.state, described.partitions) == ("Ongoing", (partition,))
                assert described.timeout_ms == 60_000
                listed = await admin.list_transactions(states=["Ongoing"])
                (mine,) = [each for each in listed if each.transactional_id == topic]
                by_pattern = await admin.list_transactions(transactional_id_pattern=f"{topic}.*")
                by_producer = await admin.list_transactions(producer_ids=[mine.producer_id])
                assert by_pattern == by_producer == (mine,)
                long = await admin.list_transactions(running_longer_than_ms=3_600_000)
                assert mine not in long
                producers = (await admin.describe_producers([partition])).one()
                open_at = {
                    each.producer_id: each.current_txn_start_offset
                    for each in producers
                    if each.current_txn_start_offset >= 0
                }
                assert open_at == {mine.producer_id: 5}
                await producer.abort_transaction()

    within(60, body())


def test_states_that_do_not_exist_are_refused(own_bootstrap: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            with pytest.raises(KafkaError, match="unknown transaction states: Asleep"):
                await Admin(cluster).list_transactions(states=["Asleep"])

    within(60, body())


def test_a_hanging_transaction_is_ended_by_a_marker(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            admin = Admin(cluster)
            config = ProducerConfig(transactional_id=topic)
            async with Producer(cluster, config) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await producer.send_soon(topic, b"", partition=0)
                await producer.flush()
                (state,) = (await admin.describe_producers([partition])).one()
                assert state.current_txn_start_offset == 0
                await admin.abort_transaction(
                    partition, state.producer_id, state.producer_epoch, state.coordinator_epoch
                )
                (state,) = (await admin.describe_producers([partition])).one()
                assert state.current_txn_start_offset == -1

    within(60, body())


def test_fencing_shuts_a_producer_out_and_aborts_what_it_had_open(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            admin = Admin(cluster)
            config = ProducerConfig(transactional_id=topic)
            async with Producer(cluster, config) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await producer.send_soon(topic, b"", partition=0)
                await producer.flush()
                (await admin.fence_producers([topic])).ok()
                with contextlib.suppress(KafkaError):
                    await producer.commit_transaction()
                with pytest.raises(KafkaError) as raised:
                    await producer.abort_transaction()
                assert raised.value.code is ErrorCode.PRODUCER_FENCED
                async with asyncio.timeout(10):
                    while True:
                        (state,) = (await admin.describe_producers([partition])).one()
                        if state.current_txn_start_offset == -1:
                            break

    within(60, body())
