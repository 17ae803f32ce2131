"""Each shortcut answers, and appends, what the slow path would: whatever the frames.

A first request is learnt from, a second one like it is served by the shortcut, and others follow
whose bytes are changed somewhere: so what is nearly like the first is tried most.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

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
from tests.server.handlers.offsets import find_coordinator, id_of
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


def records(step: Any) -> bytes:
    """Build a batch: sequence number, size and whether it is a producer's with an id."""
    sequence, size, is_idempotent, timestamp = step
    builder = BatchBuilder(
        producer_id=ProducerId(7 if is_idempotent else -1),
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=sequence if is_idempotent else -1,
    )
    builder.append(NOW_MS + timestamp, None, b"v" * size)
    return bytes(builder.build())


_STEPS = st.tuples(
    st.integers(0, 3),
    st.sampled_from([0, 20, 127, 200, 16_400]),
    st.booleans(),
    st.sampled_from([0, 0, 0, -5, 10**9]),
)


_INDEXES = st.sampled_from([0, 1, 0, 1, 2, -1])


def test_a_produce_request_comes_to_the_same(tmp_path: Path) -> None:
    numbers = count()

    with on_twins(tmp_path) as (runner, twins):
        node = twins.node

        async def create(*names: str) -> None:
            async with await Wire.connect(node) as wire:
                for name in names:
                    await create_topic(wire, name, 2)

        @settings(max_examples=150)
        @given(
            version=st.integers(3, 13),
            steps=st.lists(st.tuples(_STEPS, _INDEXES), min_size=2, max_size=4),
            acks=st.sampled_from([-1, -1, 1, 1, 0, 2]),
            client=_CLIENTS,
            transactional_id=st.sampled_from([None, None, TransactionalId("t")]),
            tags=st.tuples(_TAGS, _TAGS, _TAGS),
            mutations=_MUTATIONS,
        )
        def check(
            version: int,
            steps: list[tuple[Any, int]],
            acks: int,
            client: str | None,
            transactional_id: TransactionalId | None,
            tags: tuple[Any, Any, Any],
            mutations: list[Mutation],
        ) -> None:
            number = next(numbers)
            names = f"kept-{number:04}", f"many-{number:04}"
            runner.run(create(*names))
            ids = [id_of(node, name) for name in names]
            if not ProduceRequest.FLEXIBLE.covers(version):
                tags = (), (), ()
            frames = []
            for correlation_id, (step, index) in enumerate(steps):
                data = PartitionProduceData(
                    index=index, records=records(step), unknown_tags=tags[2]
                )
                topic = TopicProduceData(
                    name=TopicName(names[0]),
                    topic_id=ids[0],
                    partition_data=(data,),
                    unknown_tags=tags[1],
                )
                request = ProduceRequest(
                    acks=acks,
                    timeout_ms=1_000,
                    transactional_id=transactional_id,
                    topic_data=(topic,),
                    unknown_tags=tags[0],
                )
                frames.append(frame_of(request, version, correlation_id, client))

            def twin(data: bytes) -> bytes:
                return data.replace(names[0].encode(), names[1].encode()).replace(ids[0], ids[1])

            runner.run(twins.compare(ApiKey.PRODUCE, with_mutants(frames, mutations), twin))
            for index in range(2):
                kept, many = (written_since(log_of(node, name, index), 0) for name in names)
                assert kept == many

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
