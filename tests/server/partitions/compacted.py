"""Compacted topics on a node, for tests of its cleaners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from dohle.core.ids import TopicName
from dohle.server.node import Node
from dohle.storage.log import Log
from tests.server.wire import Wire, batch, create_topic, produce_request

TOPIC = TopicName("changes")
PRODUCE = 12
QUICK = {"log.cleaner.backoff.ms": "5", "metrics.listener": "127.0.0.1:0"}
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "500",
    "min.cleanable.dirty.ratio": "0",
}
DEADLINE_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def filled(node: Node, wire: Wire, configs: Mapping[str, str] = CONFIGS) -> Log:
    """A topic in which one key was written again and again."""
    await create_topic(wire, TOPIC, configs=configs)
    for number in range(30):
        records = batch(b"%d" % number * 10, key=b"key")
        await wire.send(produce_request(TOPIC, records), PRODUCE)
    return node.broker.partitions.of_topic(TOPIC)[0].log


def is_clean(log: Log) -> bool:
    return log.cleaner_offset == log.segments.active.base_offset
