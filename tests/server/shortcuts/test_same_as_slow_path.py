"""Each shortcut answers, and appends, what the slow path would: whatever the frames.

A first request is learnt from, a second one like it is served by the shortcut, and others follow
whose bytes are changed somewhere: so what is nearly like the first is tried most.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, GroupId, ProducerId, TopicName, TransactionalId, Uuid
from dohle.protocol.apis import ApiKey
from dohle.protocol.framing import encode_request
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dohle.protocol.schema import Request
from dohle.records.builder import BatchBuilder
from dohle.server.internal_topics import CONSUMER_OFFSETS
from dohle.server.net.sending import SENDFILE_BYTES_MIN
from dohle.server.node import Node
from tests.server.handlers.offsets import find_coordinator, id_of
from tests.server.partitions.second_replica import FOLLOWER, give_follower
from tests.server.shortcuts.serving import written_since
from tests.server.shortcuts.twins import MUTATIONS, Mutation, on_twins
from tests.server.transactions.txn_producer import log_of
from tests.server.wire import Wire, batch, create_topic, produce

#: At least so many requests must be sent when a shortcut has served one, or little was compared.
SERVED_MIN = 50
NOW_MS = 1_700_000_000_000
_INT64, _INT32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
_CLIENTS = st.sampled_from(["c", "", "client-\u00fc", None])
_MUTATIONS = st.lists(MUTATIONS, min_size=2, max_size=5)
#: Fields that nobody knows of; only flexible versions have room for them.
_TAGS = st.sampled_from([(), (), ((7, b"?"),)])


def frame_of(request: Request, version: int, correlation_id: int, client: str | None) -> bytes:
    return b"".join(encode_request(request, version, correlation_id, client))[4:]


def with_mutants(frames: list[bytes], mutations: list[Mutation]) -> list[bytes]:
    """Let mutants follow some frames, and the last of these again."""
    mutants = frames[-1:] * len(mutations)
    return [
        *frames,
        *(change.of(frame) for change, frame in zip(mutations, mutants, strict=True)),
        frames[-1],
    ]


# Produce


def records(step: Any) -> bytes | None:
    """Build a batch of a sequence number, a size, a producer, a timestamp, and of some kind."""
    sequence, size, is_idempotent, timestamp, kind = step
    is_idempotent = is_idempotent or kind == "transactional"
    builder = BatchBuilder(
        producer_id=ProducerId(7 if is_idempotent else -1),
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=sequence if is_idempotent else -1,
        is_transactional=kind == "transactional",
    )
    builder.append(NOW_MS + timestamp, None, b"v" * size)
    built = bytes(builder.build())
    return {"two": built * 2, "empty": b"", "null": None}.get(kind, built)


_STEPS = st.tuples(
    st.integers(0, 3),
    st.sampled_from([0, 20, 127, 200, 16_400]),
    st.booleans(),
    st.sampled_from([0, 0, 0, -5, 10**9]),
    st.sampled_from([*[""] * 16, "transactional", "two", "empty", "null"]),
)


_INDEXES = st.sampled_from([0, 1, 0, 1, 2, -1])
#: Partitions of topics, each with its records: mostly of one topic; some twice.
_PARTS = st.lists(st.tuples(_INDEXES, _STEPS), min_size=1, max_size=4)
_TOPICS = st.one_of(
    st.tuples(st.tuples(st.just(0), st.lists(st.tuples(_INDEXES, _STEPS), min_size=1, max_size=1))),
    st.tuples(st.tuples(st.just(0), _PARTS)),
    # So many are appended in several steps.
    st.tuples(
        st.tuples(st.just(0), st.lists(st.tuples(_INDEXES, _STEPS), min_size=9, max_size=10))
    ),
    st.lists(st.tuples(st.sampled_from([0, 1]), _PARTS), min_size=1, max_size=3),
)
#: What becomes of records that wait for their commit: the follower has them, or it is known that
#: they may be lost.
_FATES = st.sampled_from(["fetched", "fetched", "moved", "too few", "committed by too few"])


class ProducedTopics:
    """Two topics for what is sent by one way, and two of the same kind for the other."""

    def __init__(self, node: Node, number: int) -> None:
        self.names = [[f"{way}-{number:04}-{one}" for one in "ab"] for way in ("kept", "many")]
        self._node = node

    async def create(self, *, is_followed: bool) -> None:
        async with await Wire.connect(self._node) as wire:
            for name in chain(*self.names):
                await create_topic(wire, name, 2)
                if is_followed:
                    for index in range(2):
                        give_follower(self._node, name, index)

    def request(self, topics: Any, tags: Any, **more: Any) -> ProduceRequest:
        """Make a request to the first two topics."""
        return ProduceRequest(
            timeout_ms=60_000,
            topic_data=tuple(
                TopicProduceData(
                    name=TopicName(self.names[0][which]),
                    topic_id=id_of(self._node, self.names[0][which]),
                    partition_data=tuple(
                        PartitionProduceData(index=index, records=records(step), unknown_tags=tags)
                        for index, step in parts
                    ),
                    unknown_tags=tags,
                )
                for which, parts in topics
            ),
            unknown_tags=tags,
            **more,
        )

    def twin(self, said: bytes) -> bytes:
        """Return the same of the other two topics."""
        for kept, other in zip(*self.names, strict=True):
            said = said.replace(kept.encode(), other.encode())
            said = said.replace(id_of(self._node, kept), id_of(self._node, other))
        return said

    def decide(self, way: int, fates: list[str]) -> Callable[[], None]:
        """Return what ends all waits for commits in the topics of one way."""
        commits = self._node.broker.commits

        def decide() -> None:
            for fate, (name, index) in zip(fates, product(self.names[way], range(2)), strict=False):
                partition = self._node.broker.partitions.get(name, index)
                assert partition is not None
                end_offset = partition.log.log_end_offset
                if fate == "fetched":
                    commits.fetched(partition, FOLLOWER, end_offset, 0)
                elif fate == "moved":
                    commits.fail(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                else:
                    if fate == "committed by too few":
                        partition.log.update_high_watermark(end_offset)
                    commits.fail(partition, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

        return decide

    def check_logs(self) -> None:
        """Check that what was written is the same."""
        for kept, other in zip(*self.names, strict=True):
            for index in range(2):
                one, two = (
                    written_since(log_of(self._node, name, index), 0) for name in (kept, other)
                )
                assert one == two


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_produce_request_comes_to_the_same(tmp_path: Path, *, is_followed: bool) -> None:
    """On a node alone, and on a leader whose follower decides what is committed."""
    numbers = count()

    with on_twins(tmp_path) as (runner, twins):

        @settings(max_examples=100)
        @given(
            version=st.integers(3, 13),
            sent=st.lists(_TOPICS, min_size=2, max_size=4),
            acks=st.just(-1) if is_followed else st.sampled_from([-1, -1, 1, 1, 0, 2]),
            client=_CLIENTS,
            transactional_id=st.sampled_from([None, None, None, TransactionalId("t")]),
            tags=st.sampled_from([(), (), (), ((7, b"?"),)]),
            fates=st.lists(_FATES, min_size=4, max_size=4),
            is_long=st.sampled_from([False, False, True]),
            mutations=_MUTATIONS,
        )
        def check(
            version: int,
            sent: list[Any],
            acks: int,
            client: str | None,
            transactional_id: TransactionalId | None,
            tags: Any,
            fates: list[str],
            is_long: bool,
            mutations: list[Mutation],
        ) -> None:
            # Of a transaction, the coordinator would have to be asked.
            assume(transactional_id is None or "transactional" not in str(sent))
            topics = ProducedTopics(twins.node, next(numbers))
            runner.run(topics.create(is_followed=is_followed))
            if not ProduceRequest.FLEXIBLE.covers(version):
                tags = ()
            frames = [
                frame_of(
                    topics.request(asked, tags, acks=acks, transactional_id=transactional_id),
                    version,
                    correlation_id,
                    client,
                )
                for correlation_id, asked in enumerate(sent)
            ]
            twins.let_work_take(is_long=is_long)
            wakes = [topics.decide(way, fates if is_followed else []) for way in range(2)]
            sent_frames = with_mutants(frames, mutations)
            runner.run(twins.compare(ApiKey.PRODUCE, sent_frames, topics.twin, wakes=wakes))
            topics.check_logs()

        check()
        assert twins.served >= SERVED_MIN


# Fetch


_OFFSETS = st.integers(0, 4) | st.integers(-1, 6) | _INT64


def test_a_fetch_comes_to_the_same(tmp_path: Path) -> None:
    topic = "orders"
    with on_twins(tmp_path) as (runner, twins):
        node = twins.node

        async def begin() -> None:
            async with await Wire.connect(node) as wire:
                await create_topic(wire, topic, 2)
                for size in (1, 40, SENDFILE_BYTES_MIN, 3, 200):
                    assert (await produce(wire, topic, batch(b"v" * size))).error_code == 0

        @settings(max_examples=150)
        @given(
            version=st.integers(4, 17),
            offsets=st.lists(
                st.integers(0, 4) | st.integers(-1, 6) | _INT64, min_size=2, max_size=4
            ),
            index=st.sampled_from([0, 0, 0, 0, 1, 2]),
            epoch=st.sampled_from([-1, 0, 1]),
            limits=st.tuples(*[st.sampled_from([1 << 20, 1 << 20, 1, 100, 0, -1])] * 2),
            min_bytes=st.sampled_from([1, 1, 0, 100, 1 << 20]),
            max_wait_ms=st.sampled_from([0, 500]),
            isolation=st.sampled_from([0, 1]),
            replica=st.sampled_from([-1, -1, -1, 1, 2]),
            client=_CLIENTS,
            tags=st.tuples(_TAGS, _TAGS, _TAGS),
            mutations=_MUTATIONS,
        )
        def check(
            version: int,
            offsets: list[int],
            index: int,
            epoch: int,
            limits: tuple[int, int],
            min_bytes: int,
            max_wait_ms: int,
            isolation: int,
            replica: int,
            client: str | None,
            tags: tuple[Any, Any, Any],
            mutations: list[Mutation],
        ) -> None:
            if not FetchRequest.FLEXIBLE.covers(version):
                tags = (), (), ()
            frames = []
            for correlation_id, offset in enumerate(offsets):
                asked = FetchPartition(
                    partition=index,
                    fetch_offset=offset,
                    partition_max_bytes=limits[0],
                    current_leader_epoch=epoch if version >= 9 else -1,
                    unknown_tags=tags[2],
                )
                of_topic = FetchTopic(
                    topic=TopicName(topic),
                    topic_id=id_of(node, topic),
                    partitions=(asked,),
                    unknown_tags=tags[1],
                )
                request = FetchRequest(
                    replica_id=BrokerId(replica if version < 15 else -1),
                    max_wait_ms=max_wait_ms,
                    min_bytes=min_bytes,
                    max_bytes=limits[1],
                    isolation_level=isolation,
                    topics=(of_topic,),
                    unknown_tags=tags[0],
                )
                frames.append(frame_of(request, version, correlation_id, client))
            runner.run(twins.compare(ApiKey.FETCH, with_mutants(frames, mutations)))

        runner.run(begin())
        check()
        assert twins.served >= SERVED_MIN


# OffsetCommit


def test_an_offset_commit_comes_to_the_same(tmp_path: Path) -> None:
    numbers = count()
    properties = {"offsets.topic.num.partitions": "1", "offset.metadata.max.bytes": "12"}
    with on_twins(tmp_path, properties) as (runner, twins):
        node = twins.node

        async def begin() -> None:
            async with await Wire.connect(node) as wire:
                for name in ("orders", "payments"):
                    await create_topic(wire, name, 3)
                await find_coordinator(node, wire)

        @settings(max_examples=80)
        @given(
            data=st.data(),
            version=st.integers(6, 10),
            topics=st.dictionaries(
                st.sampled_from(["orders", "payments", "orders", "unknown"]),
                st.lists(st.integers(0, 2) | st.integers(0, 3), min_size=1, max_size=3),
                min_size=1,
            ),
            metadata=st.sampled_from(["", None, "m", "\u00fc" * 6, "thirteen long"]),
            generation=st.sampled_from([-1, -1, -1, 0, 5]),
            client=_CLIENTS,
            mutations=_MUTATIONS,
        )
        def check(
            data: st.DataObject,
            version: int,
            topics: dict[str, list[int]],
            metadata: str | None,
            generation: int,
            client: str | None,
            mutations: list[Mutation],
        ) -> None:
            number = next(numbers)
            groups = f"kept-{number:04}".encode(), f"many-{number:04}".encode()
            frames = []
            for correlation_id in range(4):
                request = OffsetCommitRequest(
                    group_id=GroupId(groups[0].decode()),
                    generation_id_or_member_epoch=generation,
                    topics=tuple(
                        OffsetCommitRequestTopic(
                            name=TopicName(name),
                            topic_id=Uuid(b"?" * 16) if name == "unknown" else id_of(node, name),
                            partitions=tuple(
                                OffsetCommitRequestPartition(
                                    partition_index=index,
                                    committed_offset=data.draw(_INT64),
                                    committed_leader_epoch=data.draw(_INT32),
                                    committed_metadata=metadata,
                                )
                                for index in indexes
                            ),
                        )
                        for name, indexes in topics.items()
                    ),
                )
                frames.append(frame_of(request, version, correlation_id, client))
            log = log_of(node, CONSUMER_OFFSETS)
            ends = [log.log_end_offset]

            def written() -> bytes:
                ends.append(log.log_end_offset)
                return b"".join(written_since(log, ends[-2]))

            runner.run(
                twins.compare(
                    ApiKey.OFFSET_COMMIT,
                    with_mutants(frames, mutations),
                    lambda said: said.replace(*groups),
                    written,
                )
            )

        runner.run(begin())
        check()
        assert twins.served >= SERVED_MIN
