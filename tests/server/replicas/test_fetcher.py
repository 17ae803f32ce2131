"""One fetcher, and a leader that does what a test tells it to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.host import SystemHost
from dohle.core.ids import BrokerId, TopicName
from dohle.metadata.metadata_version import (
    METADATA_VERSION,
    fetch_version,
    list_offsets_version,
)
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
from dohle.server.replicas.fetcher import ReplicaFetcher
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
        broker.tier_state,
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
            fetcher = ReplicaFetcher(context_of(node, leader), LEADER, 0)
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
            fetcher = ReplicaFetcher(context_of(node, leader), LEADER, 0)
            fetcher.follow(followed, 0)
            await until(lambda: any("is not copied" in text for text in caplog.messages))
            assert len(leader.asked(ApiKey.FETCH)) > 1
            await fetcher.stop()

    on_node(tmp_path, scenario)
    told = [text for text in caplog.messages if "the leader" in text]
    assert told[0].startswith("t-0 is not copied: for 0 s the leader, broker 9, has answered NOT_L")


def test_m6_a_leader_without_the_listener_of_brokers_is_never_fetched_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers look up each other by their own inter.broker.listener.name."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        (followed,) = node.broker.partitions.of_topic(TopicName("t")).values()
        async with ScriptedBroker(fetch=lambda request, version: SILENCE) as leader:
            context = context_of(node, leader)
            images = context.images
            assert isinstance(images, Images)
            known = images.image.brokers
            (endpoint,) = known[LEADER].endpoints.values()
            elsewhere = replace(known[LEADER], endpoints={"OTHER": endpoint})
            as_it_should_be = images.image
            images.image = replace(images.image, brokers=known.changed({LEADER: elsewhere}))
            fetcher = ReplicaFetcher(context, LEADER, 0)
            fetcher.follow(followed, 0)
            await until(lambda: "broker 9 has no listener PLAINTEXT" in caplog.text)
            assert (leader.connections, leader.requests) == (0, [])
            images.image = as_it_should_be
            await until(lambda: len(leader.asked(ApiKey.FETCH)) == 1)
            await fetcher.stop()

    on_node(tmp_path, scenario)


#: F11: the highest versions of Fetch and of ListOffsets that followers send, by metadata.version.
VERSIONS = {
    **dict.fromkeys((7, 8), (13, 7)),
    9: (14, 8),
    **dict.fromkeys(range(10, 19), (15, 8)),
    **dict.fromkeys((19, 20), (16, 8)),
    **dict.fromkeys(range(21, 25), (17, 9)),
    **dict.fromkeys((25, 26), (17, 10)),
    **dict.fromkeys((27, 28), (18, 10)),
    29: (18, 11),
}


def test_m8_the_finalized_metadata_version_bounds_what_followers_send() -> None:
    """F11, for every level that there is."""
    found = {level: (fetch_version(level), list_offsets_version(level)) for level in range(7, 30)}
    assert found == VERSIONS


def test_m8_a_follower_fetches_in_the_version_of_the_level_and_in_a_newer_one_when_it_is_raised(
    tmp_path: Path,
) -> None:
    """A leader of an older release is never asked what it does not know, before the upgrade."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        (followed,) = node.broker.partitions.of_topic(TopicName("t")).values()
        versions: list[int] = []

        def answer(request: FetchRequest, version: int) -> Reply:
            versions.append(version)
            return FetchResponse()

        async def until_asked_in(version: int) -> None:
            await until(lambda: versions[-1] == version)

        async with ScriptedBroker(fetch=answer) as leader:
            context = context_of(node, leader)
            images = context.images
            assert isinstance(images, Images)
            before = images.image

            def finalize(level: int) -> None:
                features = {**before.features, METADATA_VERSION: level}
                images.image = replace(before, features=features)

            finalize(17)
            fetcher = ReplicaFetcher(context, LEADER, 0)
            fetcher.follow(followed, 0)
            await until(lambda: len(versions) >= 2)
            assert set(versions) == {15}
            for level in (20, 29):
                finalize(level)
                await until_asked_in(VERSIONS[level][0])
            await fetcher.stop()
        assert versions == sorted(versions)

    on_node(tmp_path, scenario)


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
            fetcher = ReplicaFetcher(context_of(node, leader), LEADER, 0)
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
