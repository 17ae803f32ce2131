"""Long answers about the cluster are remembered, and are what they would be otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from dohle.core.ids import TopicName
from dohle.core.steps import finish
from dohle.metadata import queries
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from dohle.server.handlers.cluster import CLUSTER_OPERATIONS
from dohle.server.handlers.metadata import TOPIC_OPERATIONS
from dohle.server.net.encoded_answers import EncodedAnswers
from dohle.server.net.outcome import EncodedResponse
from dohle.server.node import Node
from tests.server.wire import Wire, create_topic, running_node

PARTITIONS = 150


def requests() -> Iterator[tuple[MetadataRequest, int]]:
    for version, names, of_cluster, of_topics in product(
        range(14),
        (None, ("long",), ("short", "long"), ("short", "none")),
        (False, True),
        (False, True),
    ):
        if (names is None and version == 0) or (version < 8 and (of_cluster or of_topics)):
            continue
        # Those of the cluster are in versions 8 to 10 only.
        if of_cluster and version > 10:
            continue
        topics = names and tuple(MetadataRequestTopic(name=TopicName(name)) for name in names)
        request = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=version < 4,
            include_cluster_authorized_operations=of_cluster,
            include_topic_authorized_operations=of_topics,
        )
        yield request, version


def computed(node: Node, request: MetadataRequest, version: int) -> MetadataResponse:
    """Return the answer as it follows from the image."""
    broker = node.broker
    steps = queries.metadata(
        broker.image,
        request,
        version=version,
        listener="PLAINTEXT",
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
    )
    response = finish(steps).response
    if request.include_cluster_authorized_operations:
        response = response.replace(cluster_authorized_operations=CLUSTER_OPERATIONS)
    if request.include_topic_authorized_operations:
        topics = (
            topic
            if topic.error_code
            else topic.replace(topic_authorized_operations=TOPIC_OPERATIONS)
            for topic in response.topics
        )
        response = response.replace(topics=tuple(topics))
    return MetadataResponse.from_bytes(version, response.encode(version))


def test_every_answer_follows_from_the_image_however_often_it_is_asked_for(tmp_path: Path) -> None:
    async def check(node: Node, wire: Wire) -> None:
        for _ in range(2):
            for request, version in requests():
                assert await wire.send(request, version) == computed(node, request, version)

    async def run() -> None:
        properties = {"auto.create.topics.enable": "false"}
        async with running_node(tmp_path, properties) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "short", 1)
            await create_topic(wire, "long", PARTITIONS)
            await check(node, wire)
            more = CreatePartitionsTopic(
                name=TopicName("long"), count=PARTITIONS + 1, assignments=None
            )
            await wire.send(CreatePartitionsRequest(topics=(more,), timeout_ms=10_000))
            await check(node, wire)
            told: MetadataResponse = await wire.send(MetadataRequest(topics=None), 12)
            assert {topic.name: len(topic.partitions) for topic in told.topics} == {
                "short": 1,
                "long": PARTITIONS + 1,
            }

    asyncio.run(run())


def test_what_is_remembered_has_limits(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node:
            image = node.images.image
            answers = EncodedAnswers()
            megabyte = EncodedResponse(3, bytes(1 << 20))
            for number in range(200):
                assert answers.find(image, number) is None
                answers.keep(image, number, megabyte)
                assert answers.find(image, number) is megabyte
            kept = [number for number in range(200) if answers.find(image, number)]
            assert kept == list(range(200 - 16, 200))
            for number in range(200, 400):
                answers.keep(image, number, EncodedResponse(3, b"small"))
            kept = [number for number in range(400) if answers.find(image, number)]
            assert kept == list(range(400 - 64, 400))
            answers.keep(image, 400, EncodedResponse(3, bytes(17 << 20)))
            assert answers.find(image, 400) is None

    asyncio.run(run())
