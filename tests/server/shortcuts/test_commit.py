"""The fast path for the common offset commit must be the slow path, only shorter.

A connection's first commits take the slow path; those like them that follow take the fast path. So
what a client gets that keeps its connection is compared with what one gets that makes a new one for
each commit: the frames of the answers, the batches in the log, and the offsets that are found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.core.seams import ManualClock
from dohle.groups.offsets.commands import Offsets
from dohle.protocol.apis import ApiKey
from dohle.protocol.framing import encode_request, encode_response
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from dohle.server.coordinators.offset_commit_answers import commit_answer
from dohle.server.internal_topics import CONSUMER_OFFSETS
from dohle.server.node import Node
from dohle.server.shortcuts.commit import CommitShortcut, learn_commit
from tests.server.faults import FaultyFileSystem, until, watched_node
from tests.server.handlers.classic_members import GROUP, join, stable
from tests.server.handlers.offsets import (
    fetch,
    fetch_request,
    find_coordinator,
    id_of,
    offsets,
)
from tests.server.shortcuts.serving import joined, serve_late, served, written_since
from tests.server.transactions.txn_producer import log_of
from tests.server.wire import Wire, create_topic, on_node

VERSIONS = range(6, 11)
TOPIC_IDS = 10
_FIRST_WITH_TAGS = 8
PARTITIONS = {"orders": 3, "payments": 5}
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offset.metadata.max.bytes": "12",
    "group.initial.rebalance.delay.ms": "0",
}
NONE = ErrorCode.NONE


def partition(index: int, offset: int, **more: Any) -> OffsetCommitRequestPartition:
    fields = {"committed_leader_epoch": 0, "committed_metadata": "", **more}
    return OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, **fields)


def request(
    offset: int = 7, indexes: tuple[int, ...] = (0, 2), group: str = "g", **changes: Any
) -> OffsetCommitRequest:
    topic = OffsetCommitRequestTopic(
        name=TopicName("orders"), partitions=tuple(partition(index, offset) for index in indexes)
    )
    return OffsetCommitRequest(group_id=GroupId(group), topics=(topic,)).replace(**changes)


def by_id(node: Node, message: OffsetCommitRequest) -> OffsetCommitRequest:
    """Let a commit name its topics as v10 does."""
    topics = tuple(topic.replace(topic_id=id_of(node, topic.name)) for topic in message.topics)
    return message.replace(topics=topics)


def frame_of(
    message: OffsetCommitRequest, version: int = 9, correlation_id: int = 5, client: str = "test"
) -> memoryview:
    return memoryview(b"".join(encode_request(message, version, correlation_id, client)))[4:]


def shortcut_of(
    node: Node,
    message: OffsetCommitRequest,
    version: int = 9,
) -> CommitShortcut:
    learnt = learn_commit(node.broker, served(frame_of(message, version)))
    assert learnt is not None
    return learnt


def on_ready_node(path: Path, scenario: Callable[[Node, Wire], Any]) -> None:
    """Run a scenario once there are topics, and group g has an offset."""

    async def ready(node: Node, wire: Wire) -> None:
        await get_ready(node, wire)
        await scenario(node, wire)

    on_node(path, ready, PROPERTIES)


async def get_ready(node: Node, wire: Wire) -> None:
    for topic, partitions in PARTITIONS.items():
        await create_topic(wire, topic, partitions)
    await find_coordinator(node, wire)
    assert codes(await wire.send(request(), 9)) == {NONE}


def codes(answer: OffsetCommitResponse) -> set[int]:
    return {each.error_code for topic in answer.topics for each in topic.partitions}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_that_fits_is_answered_with_the_same_bytes(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        shortcut = shortcut_of(node, by_id(node, request()), version)
        for offset in (0, 8, -1, 2**63 - 1):
            message = by_id(node, request(offset))
            late = serve_late(shortcut, node.broker, frame_of(message, version, -offset % 1000))
            assert late is not None
            node.broker.write_appends()
            general = encode_response(commit_answer(message, NONE), version, -offset % 1000)
            assert joined(late()) == b"".join(general)
            assert await offsets(node, wire) == {("orders", 0): offset, ("orders", 2): offset}

    on_ready_node(tmp_path, scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_that_does_not_fit_is_left_to_the_slow_path(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        message = by_id(node, request())
        shortcut = shortcut_of(node, message, version)
        assert serve_late(shortcut, node.broker, frame_of(message, version)) is not None
        for other in (
            request(group="h"),
            request(generation_id_or_member_epoch=1),
            request(member_id="m"),
            request(indexes=(0, 1)),
            request(indexes=(0,)),
            request(indexes=(0, 1, 2)),
            request(topics=(request().topics[0].replace(partitions=(partition(0, 7),) * 3),)),
        ):
            assert serve_late(shortcut, node.broker, frame_of(by_id(node, other), version)) is None
        assert serve_late(shortcut, node.broker, frame_of(message, version, client="else")) is None
        other_version = version - 1 if version > VERSIONS[0] else version + 1
        assert serve_late(shortcut, node.broker, frame_of(message, other_version)) is None
        assert serve_late(shortcut, node.broker, frame_of(message, version)[:-1]) is None

    on_ready_node(tmp_path, scenario)


def test_nothing_is_learnt_from_versions_without_leader_epochs_and_very_large_commits(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        for version, partitions, has_one in ((2, 1, 0), (5, 1, 0), (9, 1, 1), (9, 40_000, 0)):
            frame = frame_of(request(indexes=tuple(range(partitions))), version)
            learnt = learn_commit(node.broker, served(frame))
            assert (learnt is not None) == has_one, (version, partitions)

    on_ready_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [9, 10])
def test_a_topic_that_is_deleted_or_made_anew_does_not_fit(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        message = by_id(node, request())
        shortcut, frame = shortcut_of(node, message, version), frame_of(message, version)
        assert serve_late(shortcut, node.broker, frame) is not None
        # Another image with the same topics does not matter.
        await create_topic(wire, "another")
        assert serve_late(shortcut, node.broker, frame) is not None
        gone = (DeleteTopicState(name=TopicName("orders")),)
        await wire.send(DeleteTopicsRequest(timeout_ms=5_000, topics=gone), 6)
        assert serve_late(shortcut, node.broker, frame) is None
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID if version == 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert codes(await wire.send(message, version)) == {unknown}
        await create_topic(wire, "orders", 1)
        assert serve_late(shortcut, node.broker, frame) is None

    on_ready_node(tmp_path, scenario)


def test_a_member_of_a_past_generation_is_refused_on_the_same_connection(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        member = await stable(wire)
        message = request(
            group=GROUP,
            member_id=member.member_id,
            generation_id_or_member_epoch=member.generation_id,
        )
        assert [codes(await wire.send(message, 9)) for _ in range(3)] == [{NONE}] * 3
        shortcut = shortcut_of(node, message)
        assert serve_late(shortcut, node.broker, frame_of(message)) is not None
        rejoined = await join(wire, member.member_id)
        assert rejoined.generation_id > member.generation_id
        assert serve_late(shortcut, node.broker, frame_of(message)) is None
        assert codes(await wire.send(message, 9)) == {ErrorCode.ILLEGAL_GENERATION}
        current = message.replace(generation_id_or_member_epoch=rejoined.generation_id)
        assert codes(await wire.send(current, 9)) == {ErrorCode.REBALANCE_IN_PROGRESS}

    on_ready_node(tmp_path, scenario)


def test_a_coordinator_that_is_not_here_is_told_by_the_slow_path(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        shortcut = shortcut_of(node, request())
        assert serve_late(shortcut, node.broker, frame_of(request())) is not None
        node.broker.write_appends()
        node.broker.groups.resign(0)
        assert serve_late(shortcut, node.broker, frame_of(request())) is None
        assert codes(await wire.send(request(), 9)) == {ErrorCode.NOT_COORDINATOR}
        held = node.broker.partitions.get(CONSUMER_OFFSETS, 0)
        assert held is not None
        node.broker.groups.follow(held)
        assert node.broker.groups.is_loading
        assert serve_late(shortcut, node.broker, frame_of(request())) is None
        await until(lambda: not node.broker.groups.is_loading)
        assert serve_late(shortcut, node.broker, frame_of(request())) is not None

    on_ready_node(tmp_path, scenario)


def test_a_commit_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        fs = FaultyFileSystem()
        fatal: list[str] = []
        async with (
            watched_node(tmp_path, fatal, PROPERTIES, fs=fs) as node,
            await Wire.connect(node) as wire,
        ):
            await get_ready(node, wire)
            late = serve_late(shortcut_of(node, request()), node.broker, frame_of(request()))
            assert late is not None
            fs.writes[CONSUMER_OFFSETS] = OSError("the disk is gone")
            node.broker.write_appends()
            refused = commit_answer(request(), ErrorCode.NOT_COORDINATOR)
            assert joined(late()) == b"".join(encode_response(refused, 9, 5))

    asyncio.run(run())


def test_commits_that_come_together_are_all_answered_and_found(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        for offset in range(20, 30):
            await wire.post(request(offset), 9)
        await wire.post(fetch_request(node, 9, None, ["g"]), 9)
        for _ in range(10):
            assert codes(await wire.answer(ApiKey.OFFSET_COMMIT, 9)) == {NONE}
        (group,) = (await wire.answer(ApiKey.OFFSET_FETCH, 9)).groups
        found = {each.committed_offset for topic in group.topics for each in topic.partitions}
        assert found == {29}

    on_ready_node(tmp_path, scenario)


def test_a_commit_that_the_machine_fails_to_take_in_begins_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    async def scenario(node: Node, wire: Wire) -> None:
        assert [codes(await wire.send(request(), 9)) for _ in range(2)] == [{NONE}] * 2
        monkeypatch.setattr(Offsets, "replay_repeated", fail)
        refused = codes(await wire.send(request(99), 9))
        assert refused == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        monkeypatch.undo()
        await until(lambda: not node.broker.groups.is_loading)
        # It was in the log already: whoever is told to try again does no harm.
        assert await offsets(node, wire) == {("orders", 0): 99, ("orders", 2): 99}
        assert codes(await wire.send(request(100), 9)) == {NONE}

    on_ready_node(tmp_path, scenario)


# Whatever is committed


class Layout(NamedTuple):
    """What commits are the same in: topics with partitions, and the metadata of each."""

    topics: list[tuple[str, list[tuple[int, str | None]]]]


def shapes_of(
    topics: list[str], index_max: int, metadata: list[str | None], partitions_min: int
) -> st.SearchStrategy[Layout]:
    partitions = st.tuples(st.integers(0, index_max), st.sampled_from(metadata))
    of_topic = st.lists(partitions, min_size=partitions_min, max_size=6)
    named = st.tuples(st.sampled_from(topics), of_topic)
    return st.lists(named, min_size=1, max_size=3).map(Layout)


_METADATA = [None, "", "m", "\u00fc" * 6]
_ACCEPTED = shapes_of(list(PARTITIONS), 2, _METADATA, 1)
_ANY = shapes_of([*PARTITIONS, "unknown"], 5, [*_METADATA, "thirteen long"], 0)
_SHAPES = _ACCEPTED | _ACCEPTED | _ANY
_INT64, _INT32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)


#: Fields that nobody knows of, on the request, its topics and their partitions.
Tags = tuple[tuple[int, bytes], ...]
_TAGS: st.SearchStrategy[tuple[Tags, Tags, Tags]] = st.tuples(
    *(st.sampled_from([(), (), ((7, b"?"),)]) for _ in range(3))
)


def commit_of(
    shape: Layout, tags: tuple[Tags, Tags, Tags], node: Node, numbers: st.DataObject
) -> OffsetCommitRequest:
    image = node.broker.image
    topics = []
    for name, partitions in shape.topics:
        found = image.topic(TopicName(name))
        asked = tuple(
            partition(
                index,
                numbers.draw(_INT64),
                committed_leader_epoch=numbers.draw(_INT32),
                committed_metadata=metadata,
                unknown_tags=tags[2],
            )
            for index, metadata in partitions
        )
        topic_id = Uuid(b"?" * 16) if found is None else found.id
        topics.append(
            OffsetCommitRequestTopic(
                name=TopicName(name), topic_id=topic_id, partitions=asked, unknown_tags=tags[1]
            )
        )
    return OffsetCommitRequest(topics=tuple(topics), unknown_tags=tags[0])


async def compare(
    node: Node, groups: tuple[str, str], commits: list[OffsetCommitRequest], version: int
) -> None:
    """Commit once by a connection that is kept, once by a new one; all must come to the same."""
    async with await Wire.connect(node) as kept:
        for commit in commits:
            end = log_of(node, CONSUMER_OFFSETS).log_end_offset
            answer = await kept.send(commit.replace(group_id=GroupId(groups[0])), version)
            async with await Wire.connect(node) as fresh:
                other = commit.replace(group_id=GroupId(groups[1]))
                assert await fresh.send(other, version) == answer
            written = written_since(log_of(node, CONSUMER_OFFSETS), end)
            first, second = written[: len(written) // 2], written[len(written) // 2 :]
            old, new = (group.encode() for group in groups)
            assert [batch.replace(old, new) for batch in first] == second
        found = [await fetch(node, kept, None, group=group) for group in groups]
    assert found[0] == found[1]


def test_commits_by_one_connection_come_to_the_same_as_by_many(tmp_path: Path) -> None:
    numbers = count()
    with asyncio.Runner() as runner:
        node_life = watched_node(tmp_path, [], PROPERTIES, clock=ManualClock())
        node = runner.run(node_life.__aenter__())

        async def begin() -> None:
            async with await Wire.connect(node) as wire:
                await get_ready(node, wire)

        @given(
            data=st.data(),
            version=st.sampled_from(VERSIONS),
            shapes=st.lists(_SHAPES, min_size=1, max_size=2),
            turns=st.lists(st.integers(0, 9), min_size=3, max_size=8),
            tags=_TAGS,
        )
        def check(
            data: st.DataObject,
            version: int,
            shapes: list[Layout],
            turns: list[int],
            tags: tuple[Tags, Tags, Tags],
        ) -> None:
            if version < _FIRST_WITH_TAGS:
                tags = ((), (), ())
            number = next(numbers)
            # Mostly the first shape: only what comes again takes the fast path.
            of_turns = [shapes[turn >= 7 and len(shapes) > 1] for turn in turns]
            commits = [commit_of(shape, tags, node, data) for shape in of_turns]
            groups = (f"kept-{number}.", f"many-{number}.")
            runner.run(compare(node, groups, commits, version))

        try:
            runner.run(begin())
            check()
        finally:
            runner.run(node_life.__aexit__(None, None, None))
