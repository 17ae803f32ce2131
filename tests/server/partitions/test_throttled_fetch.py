"""Fetch sessions of consumers that have had too much (facts: security.md, section 9, Fetch)."""

from __future__ import annotations

from pathlib import Path

from dohle.core.ids import TopicName
from dohle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce

#: One window besides the current one: a second's worth is free.
SHORT = {"quota.window.num": "2"}
BOUND = 5_000
SIZE = 3_000


async def fetch(wire: Wire, offset: int, session_id: int, epoch: int) -> FetchResponse:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=SIZE,
        session_id=session_id,
        session_epoch=epoch,
        topics=(FetchTopic(topic=TopicName("t"), partitions=(asked,)),),
    )
    answer: FetchResponse = await wire.send(request, 12)
    assert answer.error_code == 0
    return answer


def has_records(answer: FetchResponse) -> bool:
    return any(data.records for topic in answer.responses for data in topic.partitions)


async def stage(wire: Wire, count: int = 3) -> None:
    await create_topic(wire, "t")
    for _ in range(count):
        await produce(wire, "t", batch(b"v" * SIZE))
    quota = AlterClientQuotasRequestEntryData(
        entity=(EntityData(entity_type="client-id", entity_name=None),),
        ops=(OpData(key="consumer_byte_rate", value=float(BOUND)),),
    )
    await wire.send(AlterClientQuotasRequest(entries=(quota,)))


def test_a_session_goes_on_over_answers_without_records(tmp_path: Path) -> None:
    """The session's epoch still advances, and what was not sent is sent later."""

    async def scenario(node: Node, wire: Wire) -> None:
        await stage(wire)
        first = await fetch(wire, 0, 0, 0)
        session_id = first.session_id
        assert session_id
        assert has_records(first)
        throttled, epoch = 0, 1
        found = await fetch(wire, 1, session_id, epoch)
        while not has_records(found):
            assert found.session_id == session_id
            assert found.throttle_time_ms > 0
            assert found.responses == ()
            throttled += 1
            epoch += 1
            found = await fetch(wire, 1, session_id, epoch)
        assert throttled

    on_node(tmp_path, scenario, SHORT)


def test_no_session_begins_with_an_answer_without_records(tmp_path: Path) -> None:
    """As in Kafka a full fetch that is throttled gets no session: its client asks for all again."""

    async def scenario(node: Node, wire: Wire) -> None:
        await stage(wire)
        assert has_records(await fetch(wire, 0, 0, 0))
        sessions = node.broker.fetch_sessions.session_count
        found = await fetch(wire, 1, 0, 0)
        assert found.throttle_time_ms > 0
        assert (found.session_id, found.responses) == (0, ())
        assert node.broker.fetch_sessions.session_count == sessions

    on_node(tmp_path, scenario, SHORT)


def test_what_is_not_sent_is_not_counted_as_sent(tmp_path: Path) -> None:
    """Of a throttled fetch neither the partition's traffic nor the quota knows."""

    async def scenario(node: Node, wire: Wire) -> None:
        await stage(wire)
        await fetch(wire, 0, 0, -1)
        partition = node.broker.partitions.get(TopicName("t"), 0)
        assert partition is not None
        before = partition.traffic.bytes_out
        assert (await fetch(wire, 1, 0, -1)).throttle_time_ms > 0
        assert partition.traffic.bytes_out == before

    on_node(tmp_path, scenario, SHORT)
