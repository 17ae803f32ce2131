"""Consumers with ``group.protocol=consumer`` (KIP-848), on a real broker."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from dohle.client import (
    Admin,
    At,
    Cluster,
    Consumer,
    ConsumerConfig,
    GroupProtocol,
    GroupType,
    KafkaError,
    OffsetAndMetadata,
    OffsetReset,
    Producer,
    sync,
)
from dohle.client.coordinators import CoordinatorKind
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.client.group.group_setup import Notes, make_topic, numbers, poll_until, write
from tests.client.scripted_broker import within

GROUP = ConsumerConfig(
    group_id="set by the test",
    group_protocol=GroupProtocol.CONSUMER,
    auto_offset_reset=OffsetReset.EARLIEST,
    fetch_max_wait_ms=20,
    auto_commit_interval_ms=3_600_000,
)


@pytest.mark.parametrize("assignor", [None, "uniform", "range"])
def test_members_share_a_topic_and_every_record_is_read_once(
    own_bootstrap: str, topic: str, assignor: str | None
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, group_remote_assignor=assignor)
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 4)
            async with Consumer(cluster, config) as one:
                await one.subscribe([topic])
                await write(cluster, partitions, range(40))
                items = await poll_until(lambda items: len(items) == 40, one)
                async with Consumer(cluster, config) as two:
                    await two.subscribe([topic])
                    items += await poll_until(
                        lambda _: len(one.assignment) == len(two.assignment) == 2, one, two
                    )
                    assert {*one.assignment, *two.assignment} == {*partitions}
                    await write(cluster, partitions, range(40, 80))
                    items += await poll_until(lambda more: len(items) + len(more) == 80, one, two)
                    described = (await Admin(cluster).describe_groups([topic])).ok()[topic]
                    assert described.type is GroupType.CONSUMER
                await write(cluster, partitions, range(80, 120))
                items += await poll_until(lambda more: len(items) + len(more) == 120, one)
                assert {*one.assignment} == {*partitions}
        assert sorted(numbers(items)) == list(range(120))

    within(60, body())


def test_a_listener_is_told_only_of_what_moves(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        notes = Notes()
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 2)
            async with Consumer(cluster, config) as one, Consumer(cluster, config) as two:
                await one.subscribe([topic], notes)
                await poll_until(lambda _: len(one.assignment) == 2, one)
                await two.subscribe([topic])
                await poll_until(lambda _: len(two.assignment) == 1, one, two)
                moved = tuple(each.partition for each in two.assignment)
                kept = tuple(each.partition for each in one.assignment)
                await two.close()
                await poll_until(lambda _: len(one.assignment) == 2, one)
        assert {*moved, *kept} == {0, 1}
        told = [each for each in notes.told if each[1]]
        assert told == [
            ("assigned", (0, 1)),
            ("revoked", moved),
            ("assigned", moved),
            ("revoked", (0, 1)),
        ]

    within(60, body())


def test_partitions_stay_with_a_member_that_has_not_asked_for_more(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 2)
            await write(cluster, partitions, range(10))
            async with Consumer(cluster, config) as one, Consumer(cluster, config) as two:
                await one.subscribe([topic])
                items = await poll_until(lambda items: len(items) == 10, one)
                await two.subscribe([topic])
                # Several heartbeats pass, in which the broker asks for a partition.
                assert await two.poll(timeout_ms=300) == []
                assert two.assignment == ()
                assert {*one.assignment} == {*partitions}
                items += await poll_until(lambda _: len(two.assignment) == 1, one, two)
                # What was processed was committed with the revocation.
                assert sorted(numbers(items)) == list(range(10))

    within(60, body())


def test_a_member_that_the_group_has_removed_joins_again(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, enable_auto_commit=False)
        notes = Notes()
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 2)
            await write(cluster, partitions, range(10))
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic], notes)
                await poll_until(lambda items: len(items) == 10, consumer)
                before = consumer.group_metadata()
                await remove(cluster, topic, before.member_id)
                items = await poll_until(lambda items: len(items) == 10, consumer)
                assert sorted(numbers(items)) == list(range(10))
                after = consumer.group_metadata()
                assert after.member_id == before.member_id
                assert after.generation_id > before.generation_id
        assert [each for each in notes.told if each[1]] == [
            ("assigned", (0, 1)),
            ("lost", (0, 1)),
            ("assigned", (0, 1)),
            ("revoked", (0, 1)),
        ]

    within(60, body())


async def remove(cluster: Cluster, group_id: str, member_id: str) -> None:
    """Let a member leave without its knowledge."""

    async def ask(connection: Connection) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GroupId(group_id), member_id=member_id, member_epoch=-1
        )
        answer = await connection.request(request, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0

    await cluster.coordinators.ask(CoordinatorKind.GROUP, group_id, "removal", ask)


def test_a_commit_of_a_removed_member_is_refused_and_the_member_comes_back(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, enable_auto_commit=False)
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 1)
            await write(cluster, partitions, range(5))
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic])
                await poll_until(lambda items: len(items) == 5, consumer)
                await remove(cluster, topic, consumer.group_metadata().member_id)
                with pytest.raises(KafkaError) as raised:
                    await consumer.commit()
                assert raised.value.code in (
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.REBALANCE_IN_PROGRESS,
                )
                await poll_until(lambda items: len(items) == 5, consumer)
                await consumer.commit()
                found = await consumer.committed(partitions)
                assert found[partitions[0]].offset == 5

    within(60, body())


def test_a_static_member_comes_back_to_its_partitions(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        notes = Notes()
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 4)
            async with Consumer(cluster, config) as other:
                await other.subscribe([topic], notes)
                async with Consumer(cluster, replace(config, group_instance_id="i")) as first:
                    await first.subscribe([topic])
                    await poll_until(
                        lambda _: len(first.assignment) == len(other.assignment) == 2, first, other
                    )
                    had = {*first.assignment}
                told = len(notes.told)
                async with Consumer(cluster, replace(config, group_instance_id="i")) as second:
                    await second.subscribe([topic])
                    await poll_until(lambda _: len(second.assignment) == 2, second, other)
                    assert {*second.assignment} == had
                    assert len(notes.told) == told

    within(60, body())


def test_a_static_member_beside_another_of_its_id_is_refused(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, group_instance_id="i")
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            async with Consumer(cluster, config) as one, Consumer(cluster, config) as two:
                await one.subscribe([topic])
                await poll_until(lambda _: len(one.assignment) == 1, one)
                await two.subscribe([topic])
                with pytest.raises(KafkaError) as raised:
                    await two.poll(timeout_ms=10_000)
                assert raised.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
                # The first one is not harmed, not even by the end of the other.
                await two.close()
                await one.commit({partition: OffsetAndMetadata(0)})

    within(60, body())


def test_the_broker_finds_topics_by_a_pattern_also_those_of_later(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        async with Cluster(own_bootstrap) as cluster:
            (first,) = await make_topic(cluster, f"{topic}-a", 1)
            (beside,) = await make_topic(cluster, f"{topic}-c", 1)
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe(re.compile(f"{topic.upper()}-[AB]", re.IGNORECASE))
                await poll_until(lambda _: consumer.assignment == (first,), consumer)
                (second,) = await make_topic(cluster, f"{topic}-b", 1)
                await poll_until(lambda _: {*consumer.assignment} == {first, second}, consumer)
                await consumer.subscribe([beside.topic])
                await poll_until(lambda _: consumer.assignment == (beside,), consumer)

    within(60, body())


@pytest.mark.parametrize(
    ("pattern", "assignor", "code"),
    [
        (re.compile("(?=a)b"), None, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (re.compile("a"), "own", ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_what_the_broker_refuses_is_raised_to_the_reader(
    own_bootstrap: str, topic: str, pattern: re.Pattern[str], assignor: str, code: ErrorCode
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, group_remote_assignor=assignor)
        async with Consumer(own_bootstrap, config) as consumer:
            await consumer.subscribe(pattern)
            for _ in range(2):
                with pytest.raises(KafkaError) as raised:
                    await consumer.poll(timeout_ms=10_000)
                assert raised.value.code is code

    within(60, body())


def test_a_pattern_with_flags_that_brokers_do_not_have_is_refused_at_once(topic: str) -> None:
    async def body() -> None:
        async with Consumer("127.0.0.1:1", replace(GROUP, group_id=topic)) as consumer:
            with pytest.raises(ValueError, match="flags"):
                consumer.subscribe(re.compile("a b", re.VERBOSE))

    within(20, body())


def test_a_topic_that_does_not_exist_is_told_of_and_read_when_it_does(
    own_bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with (
            Cluster(own_bootstrap) as cluster,
            Consumer(cluster, replace(GROUP, group_id=topic)) as consumer,
        ):
            await consumer.subscribe([topic])
            told = f"topic {topic} does not exist; waiting for it"
            await poll_until(lambda _: told in caplog.text, consumer)
            partitions = await make_topic(cluster, topic, 1)
            await poll_until(lambda _: consumer.assignment == partitions, consumer)

    within(60, body())


def test_offsets_of_a_member_can_be_part_of_a_transaction(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, enable_auto_commit=False)
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, (partition,), range(3))
            async with (
                Consumer(cluster, config) as consumer,
                Producer(cluster, transactional_id=topic) as producer,
            ):
                await consumer.subscribe([topic])
                await poll_until(lambda items: len(items) == 3, consumer)
                await producer.init_transactions()
                async with producer.transaction():
                    await producer.send_offsets_to_transaction(
                        {partition: OffsetAndMetadata(2)}, consumer.group_metadata()
                    )
                assert (await consumer.committed([partition]))[partition].offset == 2

    within(60, body())


def test_the_other_face_reads_to_the_end_and_goes_on_where_it_was(
    own_bootstrap: str, topic: str
) -> None:
    settings = {
        "bootstrap.servers": own_bootstrap,
        "group.id": topic,
        "group.protocol": "consumer",
        "group.remote.assignor": "range",
        "auto.offset.reset": "earliest",
    }
    with sync.Producer(own_bootstrap) as producer:
        for number in range(4):
            producer.send_soon(topic, b"%d" % number)
    for begun, ended in ((0, 4), (4, 6)):
        with sync.Consumer(settings) as consumer:
            consumer.subscribe([topic], stop_at_end=True)
            assert [int(each.value or b"") for each in consumer] == [*range(begun, ended)]
        if ended == 4:
            with sync.Producer(own_bootstrap) as producer:
                producer.send(topic, b"4")
                producer.send(topic, b"5")


def test_seeking_and_unsubscribing_work_as_in_classic_groups(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, (partition,), range(5))
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic])
                await poll_until(lambda items: len(items) == 5, consumer)
                await consumer.seek(partition, At(3))
                items = await poll_until(lambda items: len(items) == 2, consumer)
                assert numbers(items) == [3, 4]
                await consumer.unsubscribe()
                assert consumer.assignment == ()
                described = (await Admin(cluster).describe_groups([topic])).ok()[topic]
                assert described.members == ()
                await write(cluster, (partition,), range(5, 7))
                await consumer.subscribe([topic])
                items = await poll_until(lambda items: len(items) == 2, consumer)
                assert numbers(items) == [5, 6]

    within(60, body())


def test_members_give_partitions_back_and_forth_while_all_read(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 6)
            seen: list[int] = []
            consumers: list[Consumer] = []
            written = 0
            for change in ("+", "+", "+", "-", "+", "-", "-"):
                if change == "+":
                    consumers.append(Consumer(cluster, config))
                    await consumers[-1].subscribe([topic])
                else:
                    await consumers.pop(0).close()
                await write(cluster, partitions, range(written, written + 60))
                written += 60
                more = await poll_until(
                    lambda items: (
                        len(seen) + len(items) == written  # noqa: B023
                        and sum(len(each.assignment) for each in consumers) == 6
                        and all(each.assignment for each in consumers)
                    ),
                    *consumers,
                )
                seen += numbers(more)
            await asyncio.gather(*(each.close() for each in consumers))
            assert sorted(seen) == list(range(written))

    within(60, body())
