"""One fetcher, and a leader that does what a test tells it to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.host import SystemHost
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dohle.protocol.messages.list_offsets import ListOffsetsRequest
from dohle.replication.follower_fetches import FetchLimits
from dohle.replication.throttle import ReplicationQuota
from dohle.server.node import Node
from dohle.server.replicas import fetcher as fetcher_module
from dohle.server.replicas.context import FetcherContext, FetcherSettings
from dohle.server.replicas.fetcher import Fetcher
from tests.client.offset_answers import offsets_answer
from tests.client.scripted_broker import SILENCE, Reply, ScriptedBroker, until
from tests.server.channels.controllers import Images
from tests.server.wire import Wire, batch, create_topic, on_node, produce

LEADER = BrokerId(9)


def context_of(node: Node, leader: ScriptedBroker) -> FetcherContext:
    """A fetcher's surroundings, where the leader is a broker of the cluster."""
    broker = node.broker
    known = broker.image.brokers
    like = known[broker.node_id]
    ((name, endpoint),) = like.endpoints.items()
    there = endpoint._replace(host=leader.address.host, port=leader.address.port)
    images = Images()
    registered = replace(like, id=LEADER, endpoints={name: there})
    images.image = replace(broker.image, brokers=known.changed({LEADER: registered}))
    limits = FetchLimits(max_wait_ms=10, min_bytes=1, max_bytes=1 << 20)
    return FetcherContext(
        broker.loop,
        SystemHost(),
        broker.turns,
        broker.node_id,
        name,
        images,
        broker.commits,
        FetcherSettings(limits, 1 << 20, 10, 30_000, 10_000),
        ReplicationQuota(11, 1_000),
    )


def test_a_partition_may_be_let_go_while_its_leader_is_asked_for_offsets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other partitions of that leader are copied as before, over the same connection."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 2)
        found = node.broker.partitions.of_topic(TopicName("t"))
        gone, kept = found[0], found[1]

        def refuse(request: FetchRequest, version: int) -> Reply:
            if len(leader.asked(ApiKey.FETCH)) > 1:
                return SILENCE
            codes = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            refused = tuple(
                PartitionData(partition_index=index, error_code=code, high_watermark=-1)
                for index, code in enumerate(codes)
            )
            topic = FetchableTopicResponse(topic_id=gone.topic_id, partitions=refused)
            return FetchResponse(responses=(topic,))

        def let_go(request: ListOffsetsRequest, version: int) -> Reply:
            fetcher.forget(gone)
            return offsets_answer(request, version)

        async with ScriptedBroker(fetch=refuse, list_offsets=let_go) as leader:
            fetcher = Fetcher(context_of(node, leader), LEADER, 0)
            fetcher.follow(gone, 0)
            fetcher.follow(kept, 0)
            await until(lambda: len(leader.asked(ApiKey.FETCH)) == 2)
            assert (len(leader.asked(ApiKey.LIST_OFFSETS)), leader.connections) == (1, 1)
            (topic,) = leader.asked(ApiKey.FETCH)[1].topics
            assert [each.partition for each in topic.partitions] == [1]
            await fetcher.stop()

    on_node(tmp_path, scenario)
    assert not [text for text in caplog.messages if "report this" in text]


def test_a_leader_that_refuses_is_told_of_only_if_that_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A new leader mostly hears of that a moment later than its followers."""
    monkeypatch.setattr(fetcher_module, "_REFUSAL_TOLD_MS", 100)

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        (followed,) = node.broker.partitions.of_topic(TopicName("t")).values()

        def refuse(request: FetchRequest, version: int) -> Reply:
            refused = PartitionData(
                partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1
            )
            topic = FetchableTopicResponse(topic_id=followed.topic_id, partitions=(refused,))
            return FetchResponse(responses=(topic,))

        async with ScriptedBroker(fetch=refuse) as leader:
            fetcher = Fetcher(context_of(node, leader), LEADER, 0)
            fetcher.follow(followed, 0)
            await until(lambda: any("is not copied" in text for text in caplog.messages))
            assert len(leader.asked(ApiKey.FETCH)) > 1
            await fetcher.stop()

    on_node(tmp_path, scenario)
    told = [text for text in caplog.messages if "the leader" in text]
    assert told[0].startswith("t-0 is not copied: for 0 s the leader, broker 9, has answered NOT_L")


def test_a_partition_that_cannot_be_appended_to_is_left_out_and_counted_until_another_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The F table: any error while appending; the other partitions are copied as before."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 2)
        found = node.broker.partitions.of_topic(TopicName("t"))
        bad, good = found[0], found[1]
        assert (await produce(wire, "t", batch(b"there"), 0)).error_code == 0

        def answer(request: FetchRequest, version: int) -> Reply:
            if len(leader.asked(ApiKey.FETCH)) > 1:
                return SILENCE
            # Of the first partition the follower has offset 0 already.
            told = tuple(
                PartitionData(partition_index=index, high_watermark=0, records=batch(b"%d" % index))
                for index in range(2)
            )
            topic = FetchableTopicResponse(topic_id=bad.topic_id, partitions=told)
            return FetchResponse(responses=(topic,))

        async with ScriptedBroker(fetch=answer) as leader:
            fetcher = Fetcher(context_of(node, leader), LEADER, 0)
            fetcher.follow(bad, 0)
            fetcher.follow(good, 0)
            await until(lambda: len(leader.asked(ApiKey.FETCH)) == 2)
            assert (bad.log.log_end_offset, good.log.log_end_offset) == (1, 1)
            assert list(fetcher.counts.failed) == [bad]
            (topic,) = leader.asked(ApiKey.FETCH)[1].topics
            assert [each.partition for each in topic.partitions] == [1]
            fetcher.follow(bad, 1)
            assert list(fetcher.counts.failed) == []
            await fetcher.stop()

    on_node(tmp_path, scenario)
    assert any("t-0 is not copied until it has another leader" in text for text in caplog.messages)
