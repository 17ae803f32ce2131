"""Consumers that share topics, on a real broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dohle.client import (
    Admin,
    At,
    Beginning,
    ClientConfig,
    Cluster,
    Consumer,
    ConsumerConfig,
    OffsetAndMetadata,
    OffsetReset,
    RebalanceListener,
)
from dohle.client.coordinators import CoordinatorKind
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicName, TopicPartition
from dohle.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tests.client.group.group_setup import GROUP, Notes, make_topic, numbers, poll_until, write
from tests.client.scripted_broker import within

QUICK = ClientConfig(retry_backoff_ms=5, retry_backoff_max_ms=20, metadata_max_age_ms=50)


def test_a_group_goes_on_where_it_was(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 3)
            await write(cluster, partitions, range(30))
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic])
                first = await poll_until(lambda items: len(items) == 30, consumer)
                assert consumer.assignment == partitions
            await write(cluster, partitions, range(30, 60))
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic])
                second = await poll_until(lambda items: len(items) == 30, consumer)
            assert sorted(numbers(first)) == list(range(30))
            assert sorted(numbers(second)) == list(range(30, 60))

    within(60, body())


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_share_a_topic_and_every_record_is_read_once(
    own_bootstrap: str, topic: str, assignor: str
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, partition_assignment_strategy=(assignor,))
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
                await write(cluster, partitions, range(80, 120))
                items += await poll_until(lambda more: len(items) + len(more) == 120, one)
                assert {*one.assignment} == {*partitions}
        assert sorted(numbers(items)) == list(range(120))

    within(60, body())


def test_a_listener_is_told_of_what_comes_and_goes(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, partition_assignment_strategy=("range",))
        notes = Notes()
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 2)
            async with Consumer(cluster, config) as one, Consumer(cluster, config) as two:
                await one.subscribe([topic], notes)
                await poll_until(lambda _: len(one.assignment) == 2, one)
                await two.subscribe([topic])
                await poll_until(lambda _: len(two.assignment) == 1, one, two)
        kinds = [kind for kind, _ in notes.told]
        assert notes.told[:2] == [("assigned", (0, 1)), ("revoked", (0, 1))]
        assert kinds == ["assigned", "revoked", "assigned", "revoked"]

    within(60, body())


def test_cooperative_members_are_told_only_of_what_moves(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(
            GROUP, group_id=topic, partition_assignment_strategy=("cooperative-sticky",)
        )
        notes = Notes()
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 2)
            async with Consumer(cluster, config) as one, Consumer(cluster, config) as two:
                await one.subscribe([topic], notes)
                await poll_until(lambda _: len(one.assignment) == 2, one)
                await two.subscribe([topic])
                await poll_until(lambda _: len(two.assignment) == 1, one, two)
                moved = tuple(each.partition for each in two.assignment)
                assert notes.told[:2] == [("assigned", (0, 1)), ("revoked", moved)]
                assert all(told == ("assigned", ()) for told in notes.told[2:])

    within(60, body())


class CommitsWhenRevoked(RebalanceListener):
    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self.consumer.commit()


def test_a_listener_can_commit_what_is_about_to_go(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, enable_auto_commit=False)
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, [partition], range(5))
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic], CommitsWhenRevoked(consumer))
                await poll_until(lambda items: len(items) == 5, consumer)
                assert await consumer.committed([partition]) == {}
            committed = (await Admin(cluster).list_group_offsets(topic)).ok()
            assert committed[partition].offset == 5

    within(60, body())


class Fails(RebalanceListener):
    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        raise ZeroDivisionError("a listener's own mistake")


def test_what_a_listener_raises_is_raised_by_the_read(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 1)
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.subscribe([topic], Fails())
                with pytest.raises(ZeroDivisionError, match="own mistake"):
                    await poll_until(lambda _: False, consumer)

    within(60, body())


def test_what_was_given_out_is_committed_by_itself_when_the_reader_comes_back(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, auto_commit_interval_ms=1)
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, [partition], range(5))
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic])
                await poll_until(lambda items: len(items) == 5, consumer)
                admin = Admin(cluster)
                found: list[int] = []
                async with asyncio.timeout(20):
                    while found != [5]:
                        await consumer.poll(timeout_ms=1)
                        committed = (await admin.list_group_offsets(topic)).ok()
                        found = [place.offset for place in committed.values()]

    within(60, body())


def test_what_was_being_processed_when_an_error_came_is_read_again(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, [partition], range(3))

            async def process() -> None:
                async with Consumer(cluster, config) as consumer:
                    await consumer.subscribe([topic])
                    async for _ in consumer:
                        raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await process()
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic], stop_at_end=True)
                assert [int(item.record.value or b"") async for item in consumer] == [0, 1, 2]

    within(60, body())


def test_commits_are_kept_with_their_epoch_and_metadata(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            zero, one = await make_topic(cluster, topic, 2)
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.assign({zero: Beginning()})
                place = OffsetAndMetadata(7, 0, "why")
                await consumer.commit({zero: place})
                assert await consumer.committed([zero, one]) == {zero: place}

    within(60, body())


def test_positions_are_committed_with_the_epoch_of_what_was_read(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, [partition], range(4))
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.subscribe([topic])
                await poll_until(lambda items: len(items) == 4, consumer)
                await consumer.commit()
                assert await consumer.committed([partition]) == {partition: OffsetAndMetadata(4, 0)}

    within(60, body())


def test_nothing_can_be_committed_before_the_group_has_been_joined(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.subscribe([topic])
                with pytest.raises(KafkaError) as raised:
                    await consumer.commit({partition: OffsetAndMetadata(1)})
                assert raised.value.code is ErrorCode.REBALANCE_IN_PROGRESS

    within(60, body())


def test_a_pattern_finds_topics_that_are_made_later(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap, QUICK) as cluster:
            await make_topic(cluster, f"{topic}-a", 1)
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.subscribe(re.compile(f"{topic}-."))
                await poll_until(lambda _: len(consumer.assignment) == 1, consumer)
                await make_topic(cluster, f"{topic}-b", 1)
                await make_topic(cluster, f"{topic}-not", 1)
                await poll_until(lambda _: len(consumer.assignment) == 2, consumer)
                assert {each.topic for each in consumer.assignment} == {f"{topic}-a", f"{topic}-b"}

    within(60, body())


def test_partitions_that_are_added_later_are_read_too(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap, QUICK) as cluster:
            await make_topic(cluster, topic, 1)
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.subscribe([topic])
                await poll_until(lambda _: len(consumer.assignment) == 1, consumer)
                (await Admin(cluster).create_partitions({topic: 3})).ok()
                await poll_until(lambda _: len(consumer.assignment) == 3, consumer)

    within(60, body())


def test_other_topics_can_be_subscribed_instead(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (first,) = await make_topic(cluster, f"{topic}-a", 1)
            (second,) = await make_topic(cluster, f"{topic}-b", 1)
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.subscribe([first.topic])
                await poll_until(lambda _: consumer.assignment == (first,), consumer)
                await consumer.subscribe([second.topic])
                await poll_until(lambda _: consumer.assignment == (second,), consumer)
                await consumer.unsubscribe()
                assert consumer.assignment == ()
                await consumer.assign({first: Beginning()})

    within(60, body())


def test_a_static_member_comes_back_to_what_it_had_without_a_rebalance(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        notes = Notes()
        config = replace(GROUP, group_id=topic)
        static = replace(config, group_instance_id="one")
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 2)
            async with Consumer(cluster, replace(config, group_instance_id="two")) as stays:
                await stays.subscribe([topic], notes)
                async with Consumer(cluster, static) as goes:
                    await goes.subscribe([topic])
                    await poll_until(
                        lambda _: len(goes.assignment) == len(stays.assignment) == 1, goes, stays
                    )
                    had = goes.assignment
                told = list(notes.told)
                async with Consumer(cluster, static) as returns:
                    await returns.subscribe([topic])
                    await poll_until(lambda _: returns.assignment == had, returns, stays)
                assert notes.told == told

    within(60, body())


def test_of_two_with_one_name_the_older_is_out(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, group_instance_id="one")
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 1)
            async with Consumer(cluster, config) as older, Consumer(cluster, config) as newer:
                await older.subscribe([topic])
                await poll_until(lambda _: len(older.assignment) == 1, older)
                await newer.subscribe([topic])
                with pytest.raises(KafkaError) as raised:
                    await poll_until(lambda _: False, older, newer)
                assert raised.value.code is ErrorCode.FENCED_INSTANCE_ID
                await poll_until(lambda _: len(newer.assignment) == 1, newer)

    within(60, body())


def test_what_a_vanished_member_read_goes_to_the_others(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, session_timeout_ms=300)
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 2)
            async with Consumer(cluster, config) as stays:
                await stays.subscribe([topic])
                async with Cluster(own_bootstrap) as doomed:
                    vanishes = Consumer(doomed, config)
                    await vanishes.subscribe([topic])
                    await poll_until(lambda _: len(vanishes.assignment) == 1, vanishes, stays)
                    await doomed.close()
                    await vanishes.close()
                await poll_until(lambda _: len(stays.assignment) == 2, stays)

    within(60, body())


def test_a_member_that_was_put_out_has_lost_its_partitions_and_joins_anew(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        notes = Notes()
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 1)
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.subscribe([topic], notes)
                await poll_until(lambda _: len(consumer.assignment) == 1, consumer)
                before = consumer.group_metadata()
                coordinator = cluster.coordinators.known(CoordinatorKind.GROUP, topic)
                assert coordinator is not None
                answer = await (await cluster.connection(coordinator)).request(
                    LeaveGroupRequest(
                        group_id=GroupId(topic),
                        members=(MemberIdentity(member_id=before.member_id),),
                    ),
                    LeaveGroupResponse,
                )
                assert answer.error_code == 0
                await poll_until(lambda _: len(notes.told) == 3, consumer)
                assert notes.told == [("assigned", (0,)), ("lost", (0,)), ("assigned", (0,))]
                assert consumer.group_metadata().member_id != before.member_id

    within(60, body())


def test_a_paused_partition_gives_nothing_until_it_is_resumed(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            zero, one = await make_topic(cluster, topic, 2)
            await write(cluster, [zero, one], range(20))
            async with Consumer(cluster, GROUP) as consumer:
                await consumer.assign({zero: Beginning(), one: Beginning()})
                first = await consumer.poll(timeout_ms=5000, max_records=3)
                paused = TopicPartition(first[-1].topic, first[-1].partition)
                consumer.pause([paused])
                assert consumer.paused == (paused,)
                others = await poll_until(lambda items: len(items) == 10, consumer)
                assert {item.partition for item in others} == {1 - paused.partition}
                assert consumer.position(paused) == 3
                consumer.resume([paused])
                rest = await poll_until(lambda items: len(items) == 7, consumer)
                assert sorted(numbers(first + others + rest)) == list(range(20))

    within(60, body())


def test_a_member_may_seek(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, [partition], range(10))
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                await consumer.subscribe([topic])
                await poll_until(lambda items: len(items) == 10, consumer)
                await consumer.seek(partition, At(8))
                again = await poll_until(lambda items: len(items) == 2, consumer)
                assert numbers(again) == [8, 9]

    within(60, body())


@pytest.mark.parametrize(
    ("policy", "expected"), [(OffsetReset.EARLIEST, [0, 1]), (OffsetReset.LATEST, [1])]
)
def test_where_the_group_has_not_been_the_policy_says_where_to_begin(
    own_bootstrap: str, topic: str, policy: OffsetReset, expected: list[int]
) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await write(cluster, [partition], range(1))
            config = replace(GROUP, group_id=topic, auto_offset_reset=policy)
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic])
                items = await poll_until(lambda _: len(consumer.assignment) == 1, consumer)
                await write(cluster, [partition], range(1, 2))
                items += await poll_until(
                    lambda more: len(items) + len(more) == len(expected), consumer
                )
                assert numbers(items) == expected

    within(60, body())


def test_without_a_policy_a_group_that_has_not_been_there_is_an_error(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 1)
            config = replace(GROUP, group_id=topic, auto_offset_reset=OffsetReset.NONE)
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic])
                with pytest.raises(KafkaError, match="no committed offset"):
                    await poll_until(lambda _: False, consumer)

    within(60, body())


def test_without_a_group_there_is_nothing_to_subscribe_or_commit(own_bootstrap: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster, Consumer(cluster) as consumer:
            with pytest.raises(ValueError, match="group_id"):
                await consumer.subscribe(["t"])
            with pytest.raises(ValueError, match="group_id"):
                await consumer.commit()

    within(60, body())


def test_who_subscribes_does_not_assign(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            async with Consumer(cluster, replace(GROUP, group_id=topic)) as consumer:
                with pytest.raises(TypeError, match="list of topics"):
                    await consumer.subscribe(topic)
                await consumer.subscribe([topic])
                with pytest.raises(ValueError, match="unsubscribe first"):
                    await consumer.assign({partition: Beginning()})

    within(60, body())


def test_a_topic_that_does_not_exist_yet_is_waited_for(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        async with Cluster(own_bootstrap, QUICK) as cluster, Consumer(cluster, config) as consumer:
            await consumer.subscribe([TopicName(topic)])
            assert await consumer.poll(timeout_ms=1) == []
            await make_topic(cluster, topic, 1)
            await poll_until(lambda _: len(consumer.assignment) == 1, consumer)

    within(60, body())


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConsumerConfig(group_id=""),
        lambda: ConsumerConfig(partition_assignment_strategy=()),
        lambda: ConsumerConfig(partition_assignment_strategy=("best",)),
        lambda: ConsumerConfig(session_timeout_ms=0),
        lambda: ConsumerConfig(heartbeat_interval_ms=0),
    ],
)
def test_settings_that_cannot_work_are_refused(make: Callable[[], ConsumerConfig]) -> None:
    with pytest.raises(ValueError):
        make()
