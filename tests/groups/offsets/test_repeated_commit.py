"""A repeated commit writes and leaves behind what the same commit does by the slow path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.core.steps import finish
from dohle.core.uuid import ZERO_UUID
from dohle.groups.offsets.prepared import prepare_commit
from dohle.groups.offsets.repeated_commit import RepeatedCommit, with_numbers
from dohle.groups.settings import GroupSettings
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.records.builder import BatchBuilder
from tests.coordination.driver import encoded
from tests.groups.offsets.offset_driver import OffsetDriver, producer

VERSION = 9
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_METADATA = st.sampled_from([None, "", "m", "ü" * 70, "x" * 20_000])
_TOPICS = st.builds(
    OffsetCommitRequestTopic,
    name=st.sampled_from(["a", "b", "long" * 40]),
    topic_id=st.sampled_from([ZERO_UUID, Uuid(b"\xff" * 16), Uuid(bytes(range(16)))]),
    partitions=st.lists(
        st.builds(
            OffsetCommitRequestPartition,
            partition_index=st.integers(0, 70) | _INT32,
            committed_metadata=_METADATA,
        ),
        min_size=1,
        max_size=70,
    ).map(tuple),
)


class Numbers(NamedTuple):
    offsets: list[int]
    leader_epochs: list[int]


def filled(request: OffsetCommitRequest, numbers: Numbers) -> OffsetCommitRequest:
    """Return a commit of the same partitions with these numbers."""
    left = zip(*numbers, strict=True)

    def partitions(topic: OffsetCommitRequestTopic) -> Iterator[OffsetCommitRequestPartition]:
        for each in topic.partitions:
            offset, epoch = next(left)
            yield each.replace(committed_offset=offset, committed_leader_epoch=epoch)

    return request.replace(
        topics=tuple(topic.replace(partitions=tuple(partitions(topic))) for topic in request.topics)
    )


def repeated_of(request: OffsetCommitRequest) -> RepeatedCommit:
    return RepeatedCommit(with_numbers(request, 0), with_numbers(request, -1))


def commit_generally(driver: OffsetDriver, request: OffsetCommitRequest) -> None:
    length_max = driver.settings.offset_metadata_max_bytes
    prepared = finish(prepare_commit(request, driver.clock.now_ms(), length_max))
    driver.ask(lambda machine, ticket: machine.offsets.commit(prepared, ticket, VERSION))


def small_commit(metadata: str = "") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(committed_offset=3, committed_metadata=metadata)
    topic = OffsetCommitRequestTopic(name=TopicName("t"), partitions=(partition,))
    return OffsetCommitRequest(group_id=GroupId("g"), topics=(topic,))


@given(data=st.data(), topics=st.lists(_TOPICS, min_size=1, max_size=3))
def test_repeated_commits_write_and_leave_what_others_do(
    data: st.DataObject, topics: list[OffsetCommitRequestTopic]
) -> None:
    request = OffsetCommitRequest(group_id=GroupId("group"), topics=tuple(topics))
    settings = GroupSettings(offset_metadata_max_bytes=30_000)
    general, short = OffsetDriver(settings), OffsetDriver(settings)
    repeated = repeated_of(request)
    count = repeated.record_count
    for driver in (general, short):
        driver.commit("group", {("a", 0): 1})
        # What waits for the end of a transaction is not touched.
        driver.commit_in_transaction(producer(4), "group", {("a", 1): 2})
    for _ in range(2):
        numbers = Numbers(
            data.draw(st.lists(_INT64, min_size=count, max_size=count)),
            data.draw(st.lists(_INT32, min_size=count, max_size=count)),
        )
        general.advance(1_000)
        short.advance(1_000)
        now_ms = short.clock.now_ms()
        written = len(general.log)
        commit_generally(general, filled(request, numbers))
        builder = BatchBuilder()
        records = [stored.record for stored in general.log[written:]]
        builder.append_all(now_ms, [encoded(record) for record in records if record is not None])

        offsets = short.machine.offsets
        assert offsets.accept_repeated(repeated, VERSION)
        assert repeated.batch(now_ms, *numbers) == builder.build()
        offsets.replay_repeated(repeated, now_ms, *numbers)
        assert offsets.store == general.machine.offsets.store
    for driver in (general, short):
        driver.end_transaction(producer(4), is_commit=True)
    assert short.machine.offsets.store == general.machine.offsets.store


def test_a_group_that_is_not_there_is_left_to_the_general_way() -> None:
    driver = OffsetDriver()
    repeated = repeated_of(small_commit())
    assert not driver.machine.offsets.accept_repeated(repeated, VERSION)
    driver.commit("g", {("t", 0): 3})
    assert driver.machine.offsets.accept_repeated(repeated, VERSION)


def test_metadata_that_has_become_too_long_is_left_to_the_general_way() -> None:
    driver = OffsetDriver(GroupSettings(offset_metadata_max_bytes=4))
    driver.commit("g", {("t", 0): 3})
    repeated = repeated_of(small_commit("four"))
    assert driver.machine.offsets.accept_repeated(repeated, VERSION)
    driver.settings = GroupSettings(offset_metadata_max_bytes=3)
    assert not driver.machine.offsets.accept_repeated(repeated, VERSION)


def test_a_repeated_commit_of_a_past_generation_is_refused() -> None:
    driver = OffsetDriver()
    member = driver.join("g", ["t"])
    request = small_commit().replace(
        member_id=member.member_id, generation_id_or_member_epoch=member.generation
    )
    repeated = repeated_of(request)
    assert driver.machine.offsets.accept_repeated(repeated, VERSION)
    driver.join("g", ["t"], member_id=member.member_id)
    with pytest.raises(KafkaError) as refused:
        driver.machine.offsets.accept_repeated(repeated, VERSION)
    assert refused.value.code == ErrorCode.ILLEGAL_GENERATION


def test_a_repeated_commit_keeps_its_members_session() -> None:
    driver = OffsetDriver()
    member = driver.join("g", ["t"])
    repeated = repeated_of(
        small_commit().replace(
            member_id=member.member_id, generation_id_or_member_epoch=member.generation
        )
    )
    for _ in range(5):
        driver.advance(8_000)
        assert driver.machine.offsets.accept_repeated(repeated, VERSION)
